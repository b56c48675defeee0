"""What this machine's processor does to int8."""

from __future__ import annotations

import platform

from edgekit.runner.backends.onnxruntime import sums_in_32_bits


def sums_in_16_bits() -> bool:
    """Whether this is x86 without VNNI, where products of uint8 and int8 are summed in pairs of 16 bits, and overflow.

    ONNX Runtime is told not to (`runner/backends/onnxruntime.py`); OpenVINO cannot be.
    """
    return platform.machine().lower() in ("x86_64", "amd64") and not sums_in_32_bits()
