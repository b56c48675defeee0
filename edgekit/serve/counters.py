"""Counters of all workers in one shared memory, and what a request counts there, whichever door it came by.

Each worker writes its own rows, and whoever is asked adds them up. So `/stats` tells the same truth at whichever worker
it arrives, and a worker that is started again goes on in its rows.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import traceback
from collections.abc import Iterable
from time import perf_counter_ns
from typing import Any, Protocol

from edgekit.device.monitor.histogram import BOUNDS_MS, bucket_index, percentile_ms
from edgekit.runner.errors import InputError
from edgekit.serve.batcher import SIZES
from edgekit.serve.errors import ClientDisconnected, Reason, RequestError
from edgekit.serve.log import log, where
from edgekit.serve.request import MemoryBudget, Reservation

MOST_MODELS = 64
NO_MODEL = MOST_MODELS
"""The slot of what belongs to no model: requests that were refused before one was known, and the cache."""
TIMED = ("success", "fail", "queue", "compute_input", "compute_infer", "compute_output", "cache_hit", "cache_miss")
"""Each a count and nanoseconds, as in the protocol's statistics extension."""
PLAIN = ("inference_count", "execution_count", "last_inference_ms", "pending", "cache_bytes", "cache_entries")
PARTS = {"queue": "queue", "preprocess": "compute_input", "execute": "compute_infer", "postprocess": "compute_output"}
"""The parts of a request, and what Triton calls them; each has a histogram, as whole requests (`success`) have."""
SHARES = (50, 95, 99)
"""Percentiles that are shown."""

FIELDS = {
    name: at
    for at, name in enumerate(
        (
            *(f"{kind}_{part}" for kind in TIMED for part in ("count", "ns")),
            *PLAIN,
            *(f"refused_{reason}" for reason in Reason),
            *(f"batch_{size}_{part}" for size in SIZES for part in ("count", "ns")),
        )
    )
}
COUNTS = len(BOUNDS_MS) + 1
FIRST = {kind: len(FIELDS) + number * COUNTS for number, kind in enumerate(("success", *PARTS.values()))}
"""Where each histogram begins, behind all fields."""
WIDTH = len(FIELDS) + len(FIRST) * COUNTS


class Memory:
    """The shared counters, (workers, MOST_MODELS + 1, WIDTH) int64, on a file descriptor that processes inherit."""

    def __init__(self, workers: int, descriptor: int | None = None) -> None:
        size = workers * (MOST_MODELS + 1) * WIDTH * 8
        if descriptor is None:
            descriptor = os.memfd_create("edgekit-serve", 0)
            os.ftruncate(descriptor, size)
        self.workers, self.descriptor = workers, descriptor
        self._values = memoryview(mmap.mmap(descriptor, size)).cast("q")

    def row(self, worker: int, slot: int) -> memoryview:
        """The counters that one worker writes for one model, or for none."""
        first = (worker * (MOST_MODELS + 1) + slot) * WIDTH
        return self._values[first : first + WIDTH]

    def clear(self, slot: int) -> None:
        """All counters of a slot that another model gets."""
        for worker in range(self.workers):
            row = self.row(worker, slot)
            for at in range(WIDTH):
                row[at] = 0

    def sums(self, slot: int) -> dict[str, int]:
        """A model's counters, of all workers together; the last inference is the latest."""
        rows = [self.row(worker, slot)[: len(FIELDS)].tolist() for worker in range(self.workers)]
        found = dict(zip(FIELDS, map(sum, zip(*rows))))
        found["last_inference_ms"] = max(row[FIELDS["last_inference_ms"]] for row in rows)
        return found

    def histogram(self, slot: int, kind: str) -> list[int]:
        """A model's histogram of `FIRST`, of all workers together."""
        first = FIRST[kind]
        rows = [self.row(worker, slot)[first : first + COUNTS].tolist() for worker in range(self.workers)]
        return list(map(sum, zip(*rows)))

    def percentiles_ms(self, slot: int, kind: str) -> dict[str, float | None]:
        """The shown percentiles of a histogram, each its bucket's upper bound; None where nothing was counted."""
        counts = self.histogram(slot, kind)
        return {f"p{share}_ms": percentile_ms(counts, share / 100) for share in SHARES}


def timed(row: memoryview, kind: str, ns: int, count: int = 1) -> None:
    """Add to a count and its nanoseconds."""
    at = FIELDS[f"{kind}_count"]
    row[at] += count
    row[at + 1] += ns


def took(row: memoryview, kind: str, ns: int) -> None:
    """Add one to a count, its nanoseconds, and its histogram."""
    at = FIELDS[f"{kind}_count"]
    row[at] += 1
    row[at + 1] += ns
    row[FIRST[kind] + bucket_index(ns / 1e6)] += 1


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


INPUTS = frozenset(("invalid", "too_large", "unsupported"))
"""Reasons that lie with what the client sent; whoever watches the model is told."""


class Counts(Protocol):
    """A model as far as its requests are counted: its counters, who watches it, and how many requests hold it."""

    row: memoryview
    watcher: Any
    users: int


class ModelRequest:
    """Around a request to one model: `with ModelRequest(served, arrived_ns, budget) as held`.

    What is no refusal becomes one, with 500. What the request holds of the budget is released at its end.

    Until its end the model counts the request among its users, so that a new version does not close the old one
    under a request that is still being received.
    """

    __slots__ = ("_arrived_ns", "_held", "_row", "_served", "_watcher")

    def __init__(self, served: Counts, arrived_ns: int, budget: MemoryBudget) -> None:
        self._served, self._row, self._watcher = served, served.row, served.watcher
        self._arrived_ns, self._held = arrived_ns, Reservation(budget)

    def __enter__(self) -> Reservation:
        self._served.users += 1
        return self._held

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self._served.users -= 1
        self._held.release()
        if error is None:
            return
        if isinstance(error, (ClientDisconnected, asyncio.CancelledError)):
            self._row[FIELDS["refused_cancelled"]] += 1
        elif isinstance(error, RequestError):
            refused(self._row, error, self._arrived_ns)
            if self._watcher is not None and error.reason in INPUTS:
                self._watcher.refused(InputError(error.text))
        elif isinstance(error, Exception):
            failure = internal(error)
            refused(self._row, failure, self._arrived_ns)
            raise failure from None


def refused(row: memoryview, refusal: RequestError, arrived_ns: int) -> None:
    """Count a refusal under a model."""
    refusal.is_counted = True
    timed(row, "fail", perf_counter_ns() - arrived_ns)
    row[FIELDS[f"refused_{refusal.reason}"]] += 1


def refused_early(row: memoryview, refusal: RequestError) -> None:
    """Count one that was refused before its model was known; nothing where it was counted under a model."""
    if not refusal.is_counted:
        refusal.is_counted = True
        row[FIELDS[f"refused_{refusal.reason}"]] += 1


def ended(row: memoryview, error: Exception) -> RequestError:
    """What a request is refused with that ended in `error`, counted; nothing of the request is held any more.

    An exception holds the frames that it went through, and those hold what led to it: their body and their samples
    would stay until Python looks for such cycles.
    """
    refusal = error if isinstance(error, RequestError) else internal(error)
    refused_early(row, refusal)
    held: BaseException | None = error
    while held is not None:
        traceback.clear_frames(held.__traceback__)
        held = held.__context__
    return refusal


def internal(error: Exception) -> RequestError:
    """500 for what nobody expected; the log says where it was raised."""
    log(f"internal error: {where(error)}")
    return RequestError(500, "internal error")
