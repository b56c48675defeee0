"""What this machine can do at its best, one thread: the roof that a roofline hangs under."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from edgekit.models.eager import single_thread

SIDE = 512
"""Of the square matrices; 1 MB each in float32, so they stay in a second-level cache or just above it."""
STREAM_VALUES = 8 * 1024 * 1024
"""float32 values that are copied, 32 MB: more than a core's caches."""


def measure_machine() -> dict[str, float]:
    """Multiply-adds per second in float32 and in int8, bytes per second, and the cost of one empty operator."""
    with single_thread(), torch.inference_mode():
        square = torch.rand(SIDE, SIDE)
        small = torch.randint(-128, 127, (SIDE, SIDE), dtype=torch.int8)
        block = torch.rand(STREAM_VALUES)
        target = torch.empty_like(block)
        scalar = torch.zeros(1)
        fp32_s = _fastest(lambda: square @ square, 20)
        int8_s = _fastest(lambda: torch._int_mm(small, small), 20)
        copy_s = _fastest(lambda: target.copy_(block), 10)
        empty_s = _fastest(lambda: [torch.relu(scalar) for _ in range(100)], 50) / 100
    return {
        "gmacs_per_s": SIDE**3 / fp32_s / 1e9,
        "int8_gmacs_per_s": SIDE**3 / int8_s / 1e9,
        "gbytes_per_s": 2 * block.nbytes / copy_s / 1e9,
        "overhead_us_per_operator": empty_s * 1e6,
    }


def _fastest(call: Callable[[], object], repeats: int) -> float:
    """Shortest of several runs in seconds: a ceiling is what the machine can do undisturbed."""
    call()
    best = float("inf")
    for _ in range(repeats):
        started = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - started)
    return best
