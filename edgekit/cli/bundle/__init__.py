"""Bundles from models that are ready: `edgekit bundle MODEL`.

The model is opened in processes of its own only: `jobs.py` reads its specs and records its answers there, through the
runner, so that reading, preprocess and interpreter are those of the device.
"""

from __future__ import annotations

from edgekit.core import telemetry

telemetry.disable()
