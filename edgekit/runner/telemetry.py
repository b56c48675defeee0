"""Interpreters report their use to their makers; here none does.

OpenVINO sends an event from a forked process as it is imported, and that process may hang and stay. ONNX Runtime keeps
an identifier of the device and a database of events below ~/.cache. Both only look as they are imported.
"""

from __future__ import annotations

import os
import sys
from typing import Any

ENVIRONMENT = {"ORT_DISABLE_TELEMETRY": "1"}
"""ONNX Runtime's switch (1.31.1: `1` or `true`; its own `disable_telemetry_events` comes after the files are made)."""
SENDERS = ("openvino_telemetry",)
"""Packages that do the sending. Who finds none of them, OpenVINO and NNCF, goes on with a stub of its own."""


def disable() -> None:
    """Before an interpreter is imported: it and all processes started from here report nothing."""
    os.environ.update(ENVIRONMENT)
    modules: dict[str, Any] = sys.modules
    for name in SENDERS:
        modules.setdefault(name, None)  # Python's word for "cannot be imported"
