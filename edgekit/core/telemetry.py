"""Turn off the usage reports of all libraries, in the `edgekit` command, in kernels, and in all their child processes.

Each package that imports such a library calls `disable` first, in its `__init__.py`; tests/test_telemetry.py checks it.
"""

from __future__ import annotations

import os

from edgekit.runner import telemetry

ENVIRONMENT = {
    **telemetry.ENVIRONMENT,
    "DO_NOT_TRACK": "1",  # the variable that Hugging Face's libraries, MLflow and others agreed on
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "NNCF_CI": "1",  # the only variable that NNCF has for this; it changes nothing else
}


def disable() -> None:
    """Set the environment so that this process and all processes it starts report nothing.

    Call it before such a library is imported.
    """
    telemetry.disable()
    os.environ.update(ENVIRONMENT)
