"""The command `edgekit bundle MODEL`: make a bundle from a ready-made model.

The model is opened only in child processes. There, `jobs.py` reads its specs and records its outputs with the runner,
so that inputs are read, preprocessed and run exactly as on the device.
"""

from __future__ import annotations

from edgekit.core import telemetry

telemetry.disable()
