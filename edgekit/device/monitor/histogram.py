"""The bounds of all latency histograms, and percentiles out of counts."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate

BOUNDS_MS = tuple(0.001 * 1.15**step for step in range(112))
"""Upper bounds: 1 µs to 5.5 s, each 15 % above the one before."""
EXPOSED_EVERY = 4
"""Every fourth of them is a bucket for Prometheus, each 1.75 times the one before: fewer series, a coarser p99."""


def bucket_index(ms: float) -> int:
    """The count that a latency adds to, from 0 to `len(BOUNDS_MS)`, which is what is above all bounds."""
    return bisect_left(BOUNDS_MS, ms)


def percentile_ms(counts: Sequence[int], share: float) -> float | None:
    """The upper bound of the count that a percentile lies in; None where nothing was counted."""
    total = sum(counts)
    if not total:
        return None
    found = next(number for number, seen in enumerate(accumulate(counts)) if seen >= share * total)
    return BOUNDS_MS[min(found, len(BOUNDS_MS) - 1)]


def exposed_buckets(counts: Iterable[int]) -> list[tuple[str, int]]:
    """(upper bound in seconds, how many were at most so long), for the bounds that are shown; `+Inf` comes last."""
    summed = list(accumulate(counts))
    shown = range(0, len(BOUNDS_MS), EXPOSED_EVERY)
    return [*((f"{BOUNDS_MS[each] / 1e3:.6g}", summed[each]) for each in shown), ("+Inf", summed[-1])]
