"""Keep interpreters from reporting their use to their vendors.

OpenVINO sends an event from a forked process when it is imported, and that process may hang and never end. ONNX Runtime
stores an identifier of the device and a database of events below ~/.cache. Both check their settings only when they are
imported.
"""

from __future__ import annotations

import os
import sys
from typing import Any

ENVIRONMENT = {"ORT_DISABLE_TELEMETRY": "1"}
"""The switch of ONNX Runtime 1.31.1, which accepts `1` or `true`.

Its function `disable_telemetry_events` would come too late, because the files exist by then.
"""
SENDERS = ("openvino_telemetry",)
"""Packages that send events. If they cannot be imported, OpenVINO and NNCF continue with stubs of their own."""


def disable() -> None:
    """Disable reporting in this process and its children. Call it before an interpreter is imported."""
    os.environ.update(ENVIRONMENT)
    modules: dict[str, Any] = sys.modules
    for name in SENDERS:
        modules.setdefault(name, None)  # None makes Python raise ImportError
