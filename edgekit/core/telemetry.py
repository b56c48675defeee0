"""No library of the workbook reports its use: not in the command, not in kernels, not in the processes they start.

Each package that imports such a library calls `off` first, in its `__init__.py`; tests/test_telemetry.py looks for it.
"""

from __future__ import annotations

import os

from edgekit.runner import telemetry

ENVIRONMENT = {
    **telemetry.ENVIRONMENT,
    "DO_NOT_TRACK": "1",  # what Hugging Face's libraries, MLflow and others agreed on
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "NNCF_CI": "1",  # NNCF's only one; it changes nothing else
}


def disable() -> None:
    """Before such a library is imported: it and all processes started from here report nothing."""
    telemetry.disable()
    os.environ.update(ENVIRONMENT)
