"""The bounds of all latency histograms, and percentiles from counts."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate

BOUNDS_MS = tuple(0.001 * 1.15**step for step in range(112))
"""Upper bounds: 1 µs to 5.5 s, each 15 % above the one before."""
EXPOSED_EVERY = 4
"""Every fourth bound is a bucket for Prometheus, 1.75 times the one before. This saves series, but p99 is coarser."""


def bucket_index(ms: float) -> int:
    """Return the index of the bucket for a latency. `len(BOUNDS_MS)` is the bucket for latencies above all bounds."""
    return bisect_left(BOUNDS_MS, ms)


def percentile_ms(counts: Sequence[int], fraction: float) -> float | None:
    """Return the upper bound of the bucket that contains a percentile, or None without counts."""
    total = sum(counts)
    if not total:
        return None
    index = next(number for number, cumulated in enumerate(accumulate(counts)) if cumulated >= fraction * total)
    return BOUNDS_MS[min(index, len(BOUNDS_MS) - 1)]


def exposed_buckets(counts: Iterable[int]) -> list[tuple[str, int]]:
    """Return (upper bound in seconds, cumulated count) for the exposed bounds; `+Inf` comes last."""
    cumulated = list(accumulate(counts))
    indices = range(0, len(BOUNDS_MS), EXPOSED_EVERY)
    return [*((f"{BOUNDS_MS[each] / 1e3:.6g}", cumulated[each]) for each in indices), ("+Inf", cumulated[-1])]
