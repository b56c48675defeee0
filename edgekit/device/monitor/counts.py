"""What one model has answered, refused and dropped, in counts. Nothing here waits, and nothing grows."""

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
"""A part of `timing_ms`, and what it is called in the metrics, as the server calls it."""
TOTAL = "whole"
SIZES = tuple(1 << bit for bit in range(11))
"""Upper bounds of batch sizes, 1 to 1024."""


class Counts:
    """An observer of one model. Only the model's own thread writes; a reader takes copies, and needs no lock.

    A list's element is set in one step, so a reader sees a count before or after a call, and never half of it.
    """

    __slots__ = ("_closed", "_execute", "_postprocess", "_preprocess", "_totals_ms", "_whole", "batches", "dropped_",
                 "lists", "refusals")  # fmt: skip

    def __init__(self, closed: Callable[[Counts], None] | None = None) -> None:
        self.lists = {name: [0] * (len(BOUNDS_MS) + 1) for name in (*PARTS, TOTAL)}
        self._preprocess, self._execute = self.lists["preprocess"], self.lists["execute"]
        self._postprocess, self._whole = self.lists["postprocess"], self.lists[TOTAL]
        self._totals_ms = [0.0] * len(self.lists)  # in the same order
        self.batches = [0] * (len(SIZES) + 2)  # the last one: samples
        self.refusals = {"invalid": 0, "failed": 0}
        self.dropped_ = 0
        self._closed = closed

    def answered(self, raw: np.ndarray, outputs: np.ndarray, prediction: Any) -> None:
        """Count its times. Written out: a loop over the parts takes half as long again."""
        times_ms = prediction.timing_ms
        if len(times_ms) != 3:
            self._parts(times_ms)
            return
        try:
            preprocess, execute, postprocess = times_ms["preprocess"], times_ms["execute"], times_ms["postprocess"]
        except KeyError:
            self._parts(times_ms)
            return
        whole = preprocess + execute + postprocess
        self._preprocess[bisect_left(BOUNDS_MS, preprocess)] += 1
        self._execute[bisect_left(BOUNDS_MS, execute)] += 1
        self._postprocess[bisect_left(BOUNDS_MS, postprocess)] += 1
        self._whole[bisect_left(BOUNDS_MS, whole)] += 1
        totals_ms = self._totals_ms
        totals_ms[1] += preprocess
        totals_ms[2] += execute
        totals_ms[3] += postprocess
        totals_ms[4] += whole

    def _parts(self, times_ms: dict[str, float]) -> None:
        """Those that there are, such as a stream's wait; what is no part counts in the whole alone."""
        whole = sum(times_ms.values())
        for place, (name, counts) in enumerate(self.lists.items()):
            ms = whole if name == TOTAL else times_ms.get(name)
            if ms is not None:
                counts[bisect_left(BOUNDS_MS, ms)] += 1
                self._totals_ms[place] += ms

    def refused(self, error: RunnerError) -> None:
        """One more: the input's fault, or the interpreter's."""
        self.refusals["invalid" if isinstance(error, InputError) else "failed"] += 1

    def dropped(self, count: int) -> None:
        """So many windows more."""
        self.dropped_ += count

    def executed(self, size: int) -> None:
        """A call of the model for a batch of so many samples."""
        self.batches[bisect_left(SIZES, size)] += 1
        self.batches[-1] += size

    def close(self) -> None:
        """Tell who keeps the sums that nothing more will come."""
        closed, self._closed = self._closed, None
        if closed is not None:
            closed(self)

    def add(self, other: Counts) -> None:
        """Take another's counts in."""
        for mine, its in zip((*self.lists.values(), self.batches), (*other.lists.values(), other.batches)):
            mine[:] = map(int.__add__, mine, list(its))
        self._totals_ms[:] = map(float.__add__, self._totals_ms, list(other._totals_ms))
        for reason, count in other.refusals.items():
            self.refusals[reason] += count
        self.dropped_ += other.dropped_

    def latencies(self) -> dict[str, tuple[list[int], float]]:
        """A copy of the counts of each part that there is, and its sum in ms."""
        copies = zip(self.lists, map(list, self.lists.values()), self._totals_ms)
        return {name: (counts, total_ms) for name, counts, total_ms in copies if any(counts)}

    def figures(self, labels: dict[str, str]) -> list[Family]:
        """For the exposition."""
        *parts, (_, whole, whole_ms) = zip(self.lists, self.lists.values(), self._totals_ms)
        families = [
            Family("edgekit_request_duration_seconds", "histogram", "From a raw sample to its answer",
                   histogram_samples(labels, whole, whole_ms)),
            Family("edgekit_part_duration_seconds", "histogram", "The parts of it", [
                sample for name, counts, total_ms in parts if any(counts)
                for sample in histogram_samples({**labels, "part": PARTS[name]}, counts, total_ms)]),
            Family("edgekit_refused_total", "counter", "Samples without an answer",
                   [("", {**labels, "reason": reason}, count) for reason, count in self.refusals.items()]),
            Family("edgekit_dropped_total", "counter", "Windows of streams that came too fast to be answered",
                   [("", labels, self.dropped_)]),
        ]  # fmt: skip
        *batches, samples = self.batches
        if samples:
            families.append(Family("edgekit_batch_size", "histogram", "Samples a call of the model, in batches", [
                *(("_bucket", {**labels, "le": str(size)}, sum(batches[: place + 1]))
                  for place, size in enumerate((*SIZES, "+Inf"))),
                ("_sum", labels, samples), ("_count", labels, sum(batches))]))  # fmt: skip
        return families
