"""The stages of the pipeline, one folder each; they never import one another."""

from __future__ import annotations

from edgekit.core import telemetry

telemetry.disable()
