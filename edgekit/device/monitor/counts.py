"""Counts of the samples that a model has answered, refused and dropped, kept without locks and in constant memory."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from edgekit.device.monitor.exposition import Family, histogram_samples
from edgekit.device.monitor.histogram import BOUNDS_MS
from edgekit.runner.errors import InputError

if TYPE_CHECKING:
    import numpy as np

    from edgekit.runner.errors import RunnerError

PARTS = {"wait": "queue", "preprocess": "preprocess", "execute": "execute", "postprocess": "postprocess"}
"""Parts of `timing_ms` -> their names in the metrics, which are the same as in the metrics of the server."""
TOTAL = "whole"
SIZES = tuple(1 << bit for bit in range(11))
"""Upper bounds of batch sizes, 1 to 1024."""


class Counts:
    """An observer of one model. Only the model's own thread writes; readers take copies, so no lock is needed.

    A list element is set in one step, so a reader sees a count before or after a call, but never in between.
    """

    __slots__ = ("_closed", "_execute", "_postprocess", "_preprocess", "_totals_ms", "_whole", "batches", "dropped_",
                 "lists", "refusals")  # fmt: skip

    def __init__(self, closed: Callable[[Counts], None] | None = None) -> None:
        self.lists = {name: [0] * (len(BOUNDS_MS) + 1) for name in (*PARTS, TOTAL)}
        self._preprocess, self._execute = self.lists["preprocess"], self.lists["execute"]
        self._postprocess, self._whole = self.lists["postprocess"], self.lists[TOTAL]
        self._totals_ms = [0.0] * len(self.lists)  # a sum for each of `lists`
        self.batches = [0] * (len(SIZES) + 2)  # the last element counts samples
        self.refusals = {"invalid": 0, "failed": 0}
        self.dropped_ = 0
        self._closed = closed

    def answered(self, raw: np.ndarray, outputs: np.ndarray, prediction: Any) -> None:
        """Count an answer's times. The code is unrolled, because a loop over the parts takes 50 % longer."""
        times_ms = prediction.timing_ms
        if len(times_ms) != 3:
            self._parts(times_ms)
            return
        try:
            preprocess, execute, postprocess = times_ms["preprocess"], times_ms["execute"], times_ms["postprocess"]
        except KeyError:
            self._parts(times_ms)
            return
        total = preprocess + execute + postprocess
        self._preprocess[bisect_left(BOUNDS_MS, preprocess)] += 1
        self._execute[bisect_left(BOUNDS_MS, execute)] += 1
        self._postprocess[bisect_left(BOUNDS_MS, postprocess)] += 1
        self._whole[bisect_left(BOUNDS_MS, total)] += 1
        totals_ms = self._totals_ms
        totals_ms[1] += preprocess
        totals_ms[2] += execute
        totals_ms[3] += postprocess
        totals_ms[4] += total

    def _parts(self, times_ms: dict[str, float]) -> None:
        """Count an answer whose parts are not the usual three. Parts that are not in `PARTS` only add to the total."""
        total = sum(times_ms.values())
        for index, (name, counts) in enumerate(self.lists.items()):
            ms = total if name == TOTAL else times_ms.get(name)
            if ms is not None:
                counts[bisect_left(BOUNDS_MS, ms)] += 1
                self._totals_ms[index] += ms

    def refused(self, error: RunnerError) -> None:
        """Count a refused sample, by whether the input or the interpreter is at fault."""
        self.refusals["invalid" if isinstance(error, InputError) else "failed"] += 1

    def dropped(self, count: int) -> None:
        """Count dropped windows."""
        self.dropped_ += count

    def executed(self, size: int) -> None:
        """Count a model call for a batch of `size` samples."""
        self.batches[bisect_left(SIZES, size)] += 1
        self.batches[-1] += size

    def close(self) -> None:
        """Notify the owner of the sums that no more answers will come."""
        closed, self._closed = self._closed, None
        if closed is not None:
            closed(self)

    def add(self, other: Counts) -> None:
        """Add another observer's counts."""
        for own, others in zip((*self.lists.values(), self.batches), (*other.lists.values(), other.batches)):
            own[:] = map(int.__add__, own, list(others))
        self._totals_ms[:] = map(float.__add__, self._totals_ms, list(other._totals_ms))
        for reason, count in other.refusals.items():
            self.refusals[reason] += count
        self.dropped_ += other.dropped_

    def latencies(self) -> dict[str, tuple[list[int], float]]:
        """Return copies of the counts of each part that occurred, and its sum in ms."""
        copies = zip(self.lists, map(list, self.lists.values()), self._totals_ms)
        return {name: (counts, total_ms) for name, counts, total_ms in copies if any(counts)}

    def figures(self, labels: dict[str, str]) -> list[Family]:
        """Return the metrics for the exposition."""
        *parts, (_, total, total_sum_ms) = zip(self.lists, self.lists.values(), self._totals_ms)
        families = [
            Family("edgekit_request_duration_seconds", "histogram", "From a raw sample to its answer",
                   histogram_samples(labels, total, total_sum_ms)),
            Family("edgekit_part_duration_seconds", "histogram", "The parts of that time", [
                sample for name, counts, total_ms in parts if any(counts)
                for sample in histogram_samples({**labels, "part": PARTS[name]}, counts, total_ms)]),
            Family("edgekit_refused_total", "counter", "Samples without an answer",
                   [("", {**labels, "reason": reason}, count) for reason, count in self.refusals.items()]),
            Family("edgekit_dropped_total", "counter", "Windows of streams that came too fast to be answered",
                   [("", labels, self.dropped_)]),
        ]  # fmt: skip
        *batches, samples = self.batches
        if samples:
            families.append(Family("edgekit_batch_size", "histogram", "Samples in one call of the model, in batches", [
                *(("_bucket", {**labels, "le": str(size)}, sum(batches[: index + 1]))
                  for index, size in enumerate((*SIZES, "+Inf"))),
                ("_sum", labels, samples), ("_count", labels, sum(batches))]))  # fmt: skip
        return families
