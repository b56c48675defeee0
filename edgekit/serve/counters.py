"""Counters of all workers in shared memory, and how requests over HTTP and gRPC are counted there.

Each worker writes its own rows, and any process can add them up. Every worker therefore reports the same statistics,
and a worker that is restarted continues to count in its rows.
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

MAX_MODELS = 64
NO_MODEL = MAX_MODELS
"""The index (slot) of the counters that belong to no model. They count the requests that were refused before their
model was known, and hold the cache's size."""
TIMED = ("success", "fail", "queue", "compute_input", "compute_infer", "compute_output", "cache_hit", "cache_miss")
"""The events that are both counted and timed in ns, as in the statistics extension of the protocol."""
UNTIMED = ("inference_count", "execution_count", "last_inference_ms", "pending", "cache_bytes", "cache_entries")
PARTS = {"queue": "queue", "preprocess": "compute_input", "execute": "compute_infer", "postprocess": "compute_output"}
"""The parts of a request, and Triton's names for them. Each has a histogram, and so do whole requests (`success`)."""
PERCENTILES = (50, 95, 99)
"""The percentiles that the page shows."""

FIELDS = {
    name: at
    for at, name in enumerate(
        (
            *(f"{kind}_{part}" for kind in TIMED for part in ("count", "ns")),
            *UNTIMED,
            *(f"refused_{reason}" for reason in Reason),
            *(f"batch_{size}_{part}" for size in SIZES for part in ("count", "ns")),
        )
    )
}
BUCKETS = len(BOUNDS_MS) + 1
FIRST_BUCKET = {kind: len(FIELDS) + number * BUCKETS for number, kind in enumerate(("success", *PARTS.values()))}
"""Where each histogram begins in a row, after all fields."""
ROW_LENGTH = len(FIELDS) + len(FIRST_BUCKET) * BUCKETS


class SharedCounters:
    """The shared counters: int64 of shape (workers, MAX_MODELS + 1, ROW_LENGTH).

    They lie in memory behind a file descriptor. The supervisor creates it, and the workers inherit it.
    """

    def __init__(self, workers: int, descriptor: int | None = None) -> None:
        size = workers * (MAX_MODELS + 1) * ROW_LENGTH * 8
        if descriptor is None:
            descriptor = os.memfd_create("edgekit-serve", 0)
            os.ftruncate(descriptor, size)
        self.workers, self.descriptor = workers, descriptor
        self._values = memoryview(mmap.mmap(descriptor, size)).cast("q")

    def row(self, worker: int, slot: int) -> memoryview:
        """Return the counters that one worker writes for one slot."""
        first = (worker * (MAX_MODELS + 1) + slot) * ROW_LENGTH
        return self._values[first : first + ROW_LENGTH]

    def clear(self, slot: int) -> None:
        """Reset all counters of a slot, before another model gets it."""
        for worker in range(self.workers):
            row = self.row(worker, slot)
            for field in range(ROW_LENGTH):
                row[field] = 0

    def sums(self, slot: int) -> dict[str, int]:
        """Return a model's counters, added up over all workers. `last_inference_ms` is the latest time, not a sum."""
        rows = [self.row(worker, slot)[: len(FIELDS)].tolist() for worker in range(self.workers)]
        sums = dict(zip(FIELDS, map(sum, zip(*rows))))
        sums["last_inference_ms"] = max(row[FIELDS["last_inference_ms"]] for row in rows)
        return sums

    def histogram(self, slot: int, kind: str) -> list[int]:
        """Return one of a model's histograms, added up over all workers. `kind` is a key of `FIRST_BUCKET`."""
        first = FIRST_BUCKET[kind]
        rows = [self.row(worker, slot)[first : first + BUCKETS].tolist() for worker in range(self.workers)]
        return list(map(sum, zip(*rows)))

    def percentiles_ms(self, slot: int, kind: str) -> dict[str, float | None]:
        """Return the percentiles of a histogram, each the upper bound of its bucket, or None if nothing was counted."""
        counts = self.histogram(slot, kind)
        return {f"p{percentile}_ms": percentile_ms(counts, percentile / 100) for percentile in PERCENTILES}


def add_time(row: memoryview, kind: str, ns: int, count: int = 1) -> None:
    """Count `count` events that took `ns` nanoseconds in total."""
    field = FIELDS[f"{kind}_count"]
    row[field] += count
    row[field + 1] += ns


def observe(row: memoryview, kind: str, ns: int) -> None:
    """Count one event that took `ns` nanoseconds, and add it to its histogram."""
    field = FIELDS[f"{kind}_count"]
    row[field] += 1
    row[field + 1] += ns
    row[FIRST_BUCKET[kind] + bucket_index(ns / 1e6)] += 1


def model_stats(name: str, version: str, sums: dict[str, int], sizes: Iterable[int]) -> dict[str, Any]:
    """Return one entry of `model_stats`, as defined by the statistics extension of the protocol."""
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


INPUT_FAULTS = frozenset(("invalid", "too_large", "unsupported"))
"""Reasons that are faults of the client's input. The model's watcher counts these refusals."""


class CountedModel(Protocol):
    """The parts of a model that counting requests needs: its counters, its watcher, and the number of its requests."""

    row: memoryview
    watcher: Any
    users: int


class ModelRequest:
    """Context of a request to one model: `with ModelRequest(served, arrived_ns, budget) as reservation`.

    It counts refusals, turns unexpected exceptions into RequestError (500), and releases the memory that the request
    has reserved.

    While the context is open, the request is one of the model's `users`, so that loading a new version does not close
    the old one while the request is still being received.
    """

    __slots__ = ("_arrived_ns", "_held", "_row", "_served", "_watcher")

    def __init__(self, served: CountedModel, arrived_ns: int, budget: MemoryBudget) -> None:
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
            count_refusal(self._row, error, self._arrived_ns)
            if self._watcher is not None and error.reason in INPUT_FAULTS:
                self._watcher.note_refusal(InputError(error.text))
        elif isinstance(error, Exception):
            failure = internal_error(error)
            count_refusal(self._row, failure, self._arrived_ns)
            raise failure from None


def count_refusal(row: memoryview, refusal: RequestError, arrived_ns: int) -> None:
    """Count a refused request of a model."""
    refusal.is_counted = True
    add_time(row, "fail", perf_counter_ns() - arrived_ns)
    row[FIELDS[f"refused_{refusal.reason}"]] += 1


def count_early_refusal(row: memoryview, refusal: RequestError) -> None:
    """Count a request that was refused before its model was known, unless it is counted already."""
    if not refusal.is_counted:
        refusal.is_counted = True
        row[FIELDS[f"refused_{refusal.reason}"]] += 1


def end_with_error(row: memoryview, error: Exception) -> RequestError:
    """Turn the exception that ended a request into the error for the client, count it, and free the request's memory.

    The frames of the traceback are cleared, because they hold the body and the samples, which would otherwise stay
    in memory until Python's garbage collector runs.
    """
    refusal = error if isinstance(error, RequestError) else internal_error(error)
    count_early_refusal(row, refusal)
    cause: BaseException | None = error
    while cause is not None:
        traceback.clear_frames(cause.__traceback__)
        cause = cause.__context__
    return refusal


def internal_error(error: Exception) -> RequestError:
    """Return RequestError (500) for an unexpected exception, and log where it was raised."""
    log(f"internal error: {where(error)}")
    return RequestError(500, "internal error")
