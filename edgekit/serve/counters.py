"""Counters of all workers in one shared memory: each worker writes its own row, whoever is asked adds them up.

So `/stats` tells the same truth at whichever worker it arrives. A worker that is started again goes on in its row.
"""

from __future__ import annotations

import mmap
import os
from bisect import bisect_left
from collections.abc import Iterable
from itertools import accumulate
from typing import Any

from edgekit.serve.curve import SIZES

MOST_MODELS = 64
TIMED = ("success", "fail", "queue", "compute_input", "compute_infer", "compute_output", "cache_hit", "cache_miss")
"""Each a count and nanoseconds, as in the protocol's statistics extension."""
PLAIN = (
    "inference_count",
    "execution_count",
    "last_inference_ms",
    "refused_busy",
    "refused_late",
    "cancelled",
    "pending",
)
BOUNDS_MS = tuple(0.01 * 1.15**step for step in range(96))
"""Upper bounds of the histogram of whole requests: 10 µs to 6.7 s, each 15 % above the one before."""

FIELDS = {
    name: place
    for place, name in enumerate(
        (
            *(f"{kind}_{part}" for kind in TIMED for part in ("count", "ns")),
            *PLAIN,
            *(f"batch_{size}_{part}" for size in SIZES for part in ("count", "ns")),
            *(f"below_{bound}" for bound in range(len(BOUNDS_MS) + 1)),
        )
    )
}
WIDTH = len(FIELDS)
FIRST_BOUND = FIELDS["below_0"]


class Memory:
    """The shared counters, (workers, MOST_MODELS, WIDTH) int64, on a file descriptor that processes inherit."""

    def __init__(self, workers: int, descriptor: int | None = None) -> None:
        size = workers * MOST_MODELS * WIDTH * 8
        if descriptor is None:
            descriptor = os.memfd_create("edgekit-serve", 0)
            os.ftruncate(descriptor, size)
        self.workers, self.descriptor = workers, descriptor
        self._values = memoryview(mmap.mmap(descriptor, size)).cast("q")

    def row(self, worker: int, slot: int) -> memoryview:
        """The counters that one worker writes for one model."""
        first = (worker * MOST_MODELS + slot) * WIDTH
        return self._values[first : first + WIDTH]

    def clear(self, slot: int) -> None:
        """All counters of a slot that another model gets."""
        for worker in range(self.workers):
            row = self.row(worker, slot)
            for place in range(WIDTH):
                row[place] = 0

    def sums(self, slot: int) -> dict[str, int]:
        """A model's counters, of all workers together; the last inference is the latest."""
        rows = [self.row(worker, slot).tolist() for worker in range(self.workers)]
        found = {name: sum(row[place] for row in rows) for name, place in FIELDS.items()}
        found["last_inference_ms"] = max(row[FIELDS["last_inference_ms"]] for row in rows)
        return found


def timed(row: memoryview, kind: str, ns: int, count: int = 1) -> None:
    """Add to a count and its nanoseconds."""
    place = FIELDS[f"{kind}_count"]
    row[place] += count
    row[place + 1] += ns


def request_ms(row: memoryview, ms: float) -> None:
    """Add a whole request to the histogram."""
    row[FIRST_BOUND + bisect_left(BOUNDS_MS, ms)] += 1


def percentile_ms(sums: dict[str, int], share: float) -> float | None:
    """A percentile of whole requests, the upper bound of its bucket; None where there was none."""
    counts = [sums[f"below_{bound}"] for bound in range(len(BOUNDS_MS) + 1)]
    total = sum(counts)
    if not total:
        return None
    place = next(place for place, seen in enumerate(accumulate(counts)) if seen >= share * total)
    return BOUNDS_MS[min(place, len(BOUNDS_MS) - 1)]


def model_stats(name: str, version: str, sums: dict[str, int], sizes: Iterable[int]) -> dict[str, Any]:
    """One entry of `model_stats`, in the words of the protocol's statistics extension."""
    return {
        "name": name,
        "version": version,
        "last_inference": sums["last_inference_ms"],
        "inference_count": sums["inference_count"],
        "execution_count": sums["execution_count"],
        "inference_stats": {kind: {"count": sums[f"{kind}_count"], "ns": sums[f"{kind}_ns"]} for kind in TIMED},
        "batch_stats": [
            {
                "batch_size": size,
                "compute_input": {"count": 0, "ns": 0},
                "compute_infer": {"count": sums[f"batch_{size}_count"], "ns": sums[f"batch_{size}_ns"]},
                "compute_output": {"count": 0, "ns": 0},
            }
            for size in sizes
            if sums[f"batch_{size}_count"]
        ],
    }
