"""Latency of calls, measured so that one is not favoured over another.

Calls take turns in rounds of many, because one call between foreign ones runs on cold caches (twice the time for a
small model), and the order rotates, because the first of a round pays for what came before it.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Mapping
from time import perf_counter_ns
from typing import Any

import numpy as np

from edgekit.runner import cpu
from edgekit.runner.errors import InputError

PERCENTILES = (50, 90, 95, 99)


def interleaved(
    calls: Mapping[str, Callable[[], object]],
    rounds: int,
    calls_per_round: int,
    warmup_per_round: int,
    on_round: Callable[[int], object] | None = None,
) -> dict[str, np.ndarray]:
    """Milliseconds of every single call, (rounds * calls_per_round,) each; `on_round` hears the rounds done, from 1."""
    for what, value, least in (("rounds", rounds, 1), ("calls", calls_per_round, 1), ("warmup", warmup_per_round, 0)):
        if value < least:
            raise InputError(f"{what}: got {value}; use a whole number from {least}")
    order = list(calls)
    taken = {name: np.empty((rounds, calls_per_round), dtype=np.int64) for name in order}
    for number in range(rounds):
        start = number % len(order) if order else 0
        for name in order[start:] + order[:start]:
            taken[name][number] = _timed(calls[name], calls_per_round, warmup_per_round)
        if on_round is not None:
            on_round(number + 1)
    return {name: nanoseconds.ravel() / 1e6 for name, nanoseconds in taken.items()}


def _timed(call: Callable[[], object], count: int, warmup: int) -> list[int]:
    for _ in range(warmup):
        call()
    nanoseconds = [0] * count
    collecting = gc.isenabled()
    gc.disable()
    try:
        for index in range(count):
            before = perf_counter_ns()
            call()
            nanoseconds[index] = perf_counter_ns() - before
    finally:
        if collecting:
            gc.enable()
    return nanoseconds


def summary(samples_ms: np.ndarray) -> dict[str, float]:
    """Percentiles (linear interpolation), mean, and the throughput of calls made one after another."""
    if len(samples_ms) == 0:
        raise InputError("samples_ms: got no sample; time at least one call")
    mean_ms = float(np.mean(samples_ms))
    values = np.percentile(samples_ms, PERCENTILES)
    figures = {f"p{rank}_ms": float(value) for rank, value in zip(PERCENTILES, values)}
    return {**figures, "mean_ms": mean_ms, "throughput_per_s": 1000.0 / max(mean_ms, 1e-9), "calls": len(samples_ms)}


def machine() -> dict[str, Any]:
    """What a figure must carry with it: where it was taken."""
    import platform

    return {
        "host": platform.node(),
        "cpu": cpu.name() or platform.processor() or "unknown",
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "machine": platform.machine(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "numpy": np.__version__,
    }
