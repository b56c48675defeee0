"""The monitor: compares a model's inputs and answers with the validation, and reports when they differ."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.device.monitor import inputs, outputs, sketch
from edgekit.device.monitor.canary import Canary, CanaryResult
from edgekit.device.monitor.comparison import Comparison, LatestWindow
from edgekit.device.monitor.confidence import ConfidenceMonitor
from edgekit.device.monitor.reference import MEMBER, Reference, parse_reference, read_reference
from edgekit.device.monitor.verdict import Verdict
from edgekit.runner.errors import InputError

if TYPE_CHECKING:
    from edgekit.runner.bundle import Bundle
    from edgekit.runner.bundle.manifest import Manifest
    from edgekit.runner.errors import RunnerError

CHUNK_BYTES = 2**18
"""Samples are collected up to this size and then examined together, because that takes less time."""
RECENT = 256
"""Refusals are counted among this many of the last samples."""
MIXED = 4.0
"""ADWIN is trusted only while fewer than this many samples count as one independent sample."""


class Monitor:
    """An observer that compares what a model sees and answers with the validation.

    Parameters
    ----------
    manifest : Manifest
        The bundle's manifest.
    reference : Reference or dict
        The contents of the bundle's `reference.json`.
    every_s : float
        Examine at most one sample in this many seconds; 0 examines all.
    canary_s : float
        Period in seconds in which all golden samples are run, one at a time between other samples; 0 runs none.
    false_alarms_per : int
        Accept one false alarm in this many healthy samples.

    Raises
    ------
    InputError
        An option is out of range.
    BundleError
        The reference does not belong to this model.
    """

    def __init__(
        self,
        manifest: Manifest,
        reference: Reference | Mapping[str, Any],
        every_s: float = 0.0,
        canary_s: float = 60.0,
        false_alarms_per: int = 100_000,
    ) -> None:
        for name, value in (("every_s", every_s), ("canary_s", canary_s)):
            if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value < float("inf"):
                raise InputError(f"{name}: got {value!r}; use a number of seconds from 0")
        if not isinstance(false_alarms_per, int) or isinstance(false_alarms_per, bool) or false_alarms_per < 1:
            raise InputError(f"false_alarms_per: got {false_alarms_per!r}; use a whole number from 1")
        self.manifest, self.every_s, self.canary_s = manifest, float(every_s), float(canary_s)
        self.reference = reference if isinstance(reference, Reference) else parse_reference(reference, manifest)
        self._comparison = Comparison(self.reference, false_alarms_per)
        self._select_rows = inputs.make_row_selector(manifest.raw)
        self._of_raw, self._of_output = (
            inputs.make_statistics(manifest.raw, self.reference.unknown),
            outputs.make_statistics(manifest),
        )
        names = self.reference.names
        self._confidence = names.index("confidence") if "confidence" in names else None
        self._moves = ConfidenceMonitor()
        self._bins = np.zeros((len(names), sketch.BINS), np.int64)
        self._sums = np.zeros(len(names))
        self._classes = np.zeros(len(outputs.class_labels(manifest)), np.int64)
        self._counts = dict.fromkeys(sketch.COUNTS, 0)
        self._recent: deque[bool] = deque(maxlen=RECENT)
        self._why: str | None = None
        self._waiting: list[tuple[np.ndarray, np.ndarray, Any]] = []
        self._chunk = max(1, min(64, CHUNK_BYTES // max(1, _bytes(manifest))))
        self._due_s = self._canary_due_s = 0.0
        self._canary: Canary | None = None
        self._lock = threading.RLock()

    @classmethod
    def of(cls, model: Any, every_s: float = 0.0, canary_s: float = 60.0, false_alarms_per: int = 100_000) -> Monitor:
        """Create a monitor for an opened bundle, with a canary. Raises InputError if the bundle has no reference."""
        monitor = cls.of_bundle(model.bundle, every_s, canary_s, false_alarms_per)
        monitor.attach(model)
        return monitor

    @classmethod
    def of_bundle(cls, bundle: Bundle, *limits: Any) -> Monitor:
        """Create a monitor without a canary for a bundle that is not opened yet.

        `limits` are the parameters of `of` after the model.
        """
        manifest = bundle.manifest
        if manifest.reference is None:
            raise InputError(
                f"monitor: the bundle {manifest.name} {manifest.version} has no {MEMBER}: it was made "
                "before bundles had one; build it again"
            )
        return cls(manifest, read_reference(bundle.members[manifest.reference], manifest), *limits)

    def attach(self, model: Any) -> None:
        """Let the canary run on this model."""
        self._canary = Canary(model)
        self._canary_due_s = time.monotonic() + self.canary_s / self._canary.vectors

    def answered(self, raw: np.ndarray, outputs: np.ndarray, prediction: Any) -> None:
        """Examine a sample, its outputs, and its answer, which may be None; see `Observer`."""
        with self._lock:
            self._recent.append(False)
            if self.every_s and not self._is_due():
                self._run_canary()
                return
            if prediction is None:
                self._examine_pending()
                self._examine(self._select_rows(raw)[None], raw[None], outputs[None], ())
            else:
                self._waiting.append((np.array(self._select_rows(raw)), np.array(outputs), prediction))
                if len(self._waiting) >= self._chunk:
                    self._examine_pending()
            self._run_canary()

    def observe(self, raws: np.ndarray, outputs: np.ndarray) -> None:
        """Examine many samples (n, *raw) with their outputs (n, …), oldest first. No opened model is needed.

        Raises
        ------
        InputError
            Their shapes are not those of the bundle.
        """
        raws, outputs = np.asarray(raws), np.asarray(outputs)
        expected = (self.manifest.raw.shape, self.manifest.output_shape)
        if raws.shape[1:] != expected[0] or outputs.shape[1:] != expected[1] or len(raws) != len(outputs):
            raise InputError(
                f"observe: got samples {list(raws.shape)} and outputs {list(outputs.shape)}; needed "
                f"[n, {', '.join(map(str, expected[0]))}] and [n, {', '.join(map(str, expected[1]))}]"
            )
        with self._lock:
            self._examine_pending()
            for start in range(0, len(raws), self._chunk):
                part = slice(start, start + self._chunk)
                self._examine(np.stack([self._select_rows(each) for each in raws[part]]), raws[part], outputs[part], ())
            self._recent.extend([False] * min(len(raws), RECENT))

    def refused(self, error: RunnerError) -> None:
        """Count a sample without an answer; see `Observer`."""
        with self._lock:
            is_invalid = isinstance(error, InputError)
            self._counts["refused" if is_invalid else "failed"] += 1
            self._recent.append(True)
            self._why = str(error)[:200]

    def dropped(self, count: int) -> None:
        """Count dropped windows of a stream; see `Observer`."""
        with self._lock:
            self._counts["dropped"] += count

    def close(self) -> None:
        """Examine the samples that are pending."""
        with self._lock:
            self._examine_pending()

    def canary(self) -> CanaryResult:
        """Run all golden samples now, in this thread. Call it only between two predictions of the model.

        Raises
        ------
        InputError
            No model is attached.
        """
        with self._lock:
            if self._canary is None:
                raise InputError("canary: no model is attached; use Monitor.of(model), or attach(model)")
            return self._canary.run_all()

    def canary_one(self) -> None:
        """Run only the next golden sample, if a model is attached. Like `canary`, call it between two predictions."""
        if self._canary is not None:
            self._canary.run_next()

    def sketch(self, with_pending: bool = True) -> dict[str, Any]:
        """Return a sketch: a summary of everything seen so far, as JSON values of a few kB.

        Sketches can be merged, and `Verdict.of` derives a verdict from one. `with_pending=False` leaves out the few
        samples that have not been examined yet, which takes less time.
        """
        with self._lock:
            if with_pending:
                self._examine_pending()
            return self._sketch()

    @staticmethod
    def merge(sketches: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Merge sketches of the same bundle. Raises InputError if they are not sketches, or of different bundles."""
        return sketch.merge_sketches(sketches)

    def verdict(self) -> Verdict:
        """Return the verdict on everything seen so far."""
        return Verdict.of(self.manifest, self.reference, self.sketch())

    def figures(self) -> list[Any]:
        """Return metric families for the exposition."""
        from edgekit.device.monitor.health_metrics import health_families

        return health_families(
            Verdict.of(self.manifest, self.reference, sketched := self.sketch(with_pending=False)), sketched
        )

    def _run_canary(self) -> None:
        """Run one golden sample if it is due. This cannot change the last answer, which owns its outputs."""
        if self._canary is None or not self.canary_s:
            return
        now_s = time.monotonic()
        if now_s >= self._canary_due_s:
            self._canary_due_s = now_s + self.canary_s / self._canary.vectors
            self._canary.run_next()

    def _is_due(self) -> bool:
        now_s = time.monotonic()
        if now_s < self._due_s:
            return False
        self._due_s = now_s + self.every_s
        return True

    def _examine_pending(self) -> None:
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        raws, outputs, answers = zip(*waiting)
        self._examine(selected := np.stack(raws), selected, np.stack(outputs), answers)

    def _examine(self, selected: np.ndarray, raws: np.ndarray, outputs: np.ndarray, answers: Sequence[Any]) -> None:
        output_statistics = self._of_output(raws, outputs, answers)
        values = np.concatenate([self._of_raw(selected), output_statistics.values], axis=1)
        ranks = self._comparison.take(values, output_statistics.classes)
        self._counts["samples"] += len(values)
        self._sums += values.sum(axis=0)
        bins = (ranks * sketch.BINS).astype(np.int64).clip(0, sketch.BINS - 1)
        for index in range(bins.shape[1]):
            self._bins[index] += np.bincount(bins[:, index], minlength=sketch.BINS)
        if output_statistics.classes is not None:
            self._classes += output_statistics.classes.sum(axis=0)
        if self._confidence is not None:
            self._moves.take(values[:, self._confidence].tolist())

    def _sketch(self) -> dict[str, Any]:
        comparison, latest = self._comparison, [each for each in self._comparison.latest if each is not None]
        statistics: dict[str, Any] = {}
        for index, name in enumerate(self.reference.names):
            statistics[name] = {"bins": self._bins[index].tolist(), "sum": _short(self._sums[index])}
            if latest:
                strongest = max(latest, key=lambda each: each.evidence[:, index].max())
                statistics[name]["latest"] = {
                    "samples": strongest.n,
                    "mean": _short(strongest.values[index]),
                    "rank": _short(strongest.ranks[index]),
                    "spread": _short(strongest.spreads[index]),
                    "worth": _short(strongest.worth[index]),
                    "evidence": [_short(each) for each in strongest.evidence[:, index]],
                }
        sketched: dict[str, Any] = {"format": sketch.FORMAT, "reference": self.reference.digest, "parts": 1}
        sketched.update(**self._counts, statistics=statistics)
        if len(self._classes):
            sketched["classes"] = dict(zip(outputs.class_labels(self.manifest), self._classes.tolist()))
            sketched["classes_latest"] = {}
            for index, label in enumerate(comparison.labels if latest else ()):
                strongest = max(latest, key=lambda each: each.class_evidence[index])
                values = strongest.classes[index], comparison.shares[index], strongest.class_evidence[index]
                sketched["classes_latest"][label] = [_short(each) for each in values]
        sketched["recent"] = {"refused": sum(self._recent), "of": len(self._recent), "why": self._why}
        change = self._moves.change
        if change is not None:  # ADWIN gives false alarms if neighbouring samples are correlated
            fell = bool(change["since"] < change["before"])
            sketched["confidence"] = {**change, "alarm": fell and self._is_mixed(latest)}
        sketched["canary"] = self._canary_state()
        return sketched

    def _is_mixed(self, latest: list[LatestWindow]) -> bool:
        """Whether the confidences of neighbouring samples are nearly independent, according to the longest window."""
        index = self._confidence
        return bool(latest and index is not None and latest[-1].worth[index] * MIXED > latest[-1].n)

    def _canary_state(self) -> dict[str, Any] | None:
        canary = self._canary
        if canary is None or canary.last is None:
            return None
        facts = {"runs": canary.runs, "failures": canary.failures, "last_success_s": canary.last_success_s}
        delta = canary.last.max_abs_delta
        finite = {"max_abs_delta": delta if delta < float("inf") else None}
        return {"ok": canary.last.ok, "reason": canary.last.reason, **finite, "atol": canary.atol, **facts}


def _short(value: Any) -> float:
    return float(f"{value:.6g}")


def _bytes(manifest: Manifest) -> int:
    size = int(np.prod(manifest.raw.shape)) * np.dtype(manifest.raw.dtype).itemsize
    return max(size, 4 * int(np.prod(manifest.output_shape)))
