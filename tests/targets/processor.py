"""What this machine's processor does to int8."""

from __future__ import annotations

from pathlib import Path


def sums_in_16_bits() -> bool:
    """Whether this is x86 without VNNI, where products of uint8 and int8 are summed in pairs of 16 bits, and overflow.

    ONNX Runtime is told not to (`runner/backends/onnxruntime.py`); OpenVINO cannot be.
    """
    try:
        flags = Path("/proc/cpuinfo").read_text()
    except OSError:
        return False
    return "avx2" in flags and "vnni" not in flags
