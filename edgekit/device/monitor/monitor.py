"""Is it still right? Watches a model's inputs and answers in use, and says when they stop looking like validation's."""

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
"""Of samples that wait to be looked at together; looking at many at once costs less."""
RECENT = 256
"""Samples whose refusals are counted for the verdict."""
MIXED = 4.0
"""Samples that may be worth one, where ADWIN is still believed."""


class Monitor:
    """An observer of a model, which knows at any time whether what it sees is what validation saw.

    Parameters
    ----------
    manifest
        That of the bundle.
    reference
        What stands in the bundle's `reference.json`.
    every_s
        At most one sample is looked at in so many seconds; 0: each one.
    canary_s
        The golden vectors are answered in so many seconds, one at a time, between answers; 0: never.
    false_alarms_per
        In how many sound samples there may be one false alarm.

    Raises
    ------
    InputError
        An option is no number that it can be.
    BundleError
        The reference is none of this model.
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
        self._thin = inputs.make_row_selector(manifest.raw)
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
        """One for an opened bundle, whose canary runs on its interpreter; InputError where it has no reference."""
        made = cls.of_bundle(model.bundle, every_s, canary_s, false_alarms_per)
        made.attach(model)
        return made

    @classmethod
    def of_bundle(cls, bundle: Bundle, *limits: Any) -> Monitor:
        """The same for a bundle that is not opened yet, without a canary; `limits` are the last parameters of `of`."""
        manifest = bundle.manifest
        if manifest.reference is None:
            raise InputError(
                f"monitor: the bundle {manifest.name} {manifest.version} has no {MEMBER}: it was made "
                "before bundles had one; make it again"
            )
        return cls(manifest, read_reference(bundle.members[manifest.reference], manifest), *limits)

    def attach(self, model: Any) -> None:
        """Let the canary run on this model."""
        self._canary = Canary(model)
        self._canary_due_s = time.monotonic() + self.canary_s / self._canary.vectors

    def answered(self, raw: np.ndarray, outputs: np.ndarray, prediction: Any) -> None:
        """A sample, the outputs for it, and the answer, which may be None; see `Observer`."""
        with self._lock:
            self._recent.append(False)
            if self.every_s and not self._is_due():
                self._run_canary()
                return
            if prediction is None:
                self._look()
                self._take(self._thin(raw)[None], raw[None], outputs[None], ())
            else:
                self._waiting.append((np.array(self._thin(raw)), np.array(outputs), prediction))
                if len(self._waiting) >= self._chunk:
                    self._look()
            self._run_canary()

    def observe(self, raws: np.ndarray, outputs: np.ndarray) -> None:
        """Samples (n, *raw) with their outputs (n, …), oldest first; for speed, or where no model is at hand.

        Raises
        ------
        InputError
            They are of other shapes than the bundle's.
        """
        raws, outputs = np.asarray(raws), np.asarray(outputs)
        wanted = (self.manifest.raw.shape, self.manifest.output_shape)
        if raws.shape[1:] != wanted[0] or outputs.shape[1:] != wanted[1] or len(raws) != len(outputs):
            raise InputError(
                f"observe: got samples {list(raws.shape)} and outputs {list(outputs.shape)}; needed "
                f"[n, {', '.join(map(str, wanted[0]))}] and [n, {', '.join(map(str, wanted[1]))}]"
            )
        with self._lock:
            self._look()
            for begun in range(0, len(raws), self._chunk):
                part = slice(begun, begun + self._chunk)
                self._take(np.stack([self._thin(each) for each in raws[part]]), raws[part], outputs[part], ())
            self._recent.extend([False] * min(len(raws), RECENT))

    def refused(self, error: RunnerError) -> None:
        """A sample that got no answer; see `Observer`."""
        with self._lock:
            rejected = isinstance(error, InputError)
            self._counts["refused" if rejected else "failed"] += 1
            self._recent.append(True)
            self._why = str(error)[:200]

    def dropped(self, count: int) -> None:
        """Windows of a stream that nobody answered; see `Observer`."""
        with self._lock:
            self._counts["dropped"] += count

    def close(self) -> None:
        """Look at what still waits."""
        with self._lock:
            self._look()

    def canary(self) -> CanaryResult:
        """Answer all golden vectors now, in this thread; only between two answers of the model.

        Raises
        ------
        InputError
            No model is attached.
        """
        with self._lock:
            if self._canary is None:
                raise InputError("canary: no model is attached; use Monitor.of(model), or attach(model)")
            return self._canary.all()

    def canary_one(self) -> None:
        """Answer the next golden vector alone, where a model is attached; between two answers, as `canary`."""
        if self._canary is not None:
            self._canary.one()

    def sketch(self, look: bool = True) -> dict[str, Any]:
        """What was seen so far, for JSON: a few kB, to be merged with others, and what `Verdict.of` takes.

        `look=False` leaves out the few samples that wait to be looked at, which takes less time.
        """
        with self._lock:
            if look:
                self._look()
            return self._sketch()

    @staticmethod
    def merge(sketches: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """One sketch of several of the same bundle; InputError where they are none, or of different bundles."""
        return sketch.merge_sketches(sketches)

    def verdict(self) -> Verdict:
        """Is it still right?"""
        return Verdict.of(self.manifest, self.reference, self.sketch())

    def figures(self) -> list[Any]:
        """Families for the exposition of metrics."""
        from edgekit.device.monitor.health_metrics import health_families

        return health_families(Verdict.of(self.manifest, self.reference, seen := self.sketch(look=False)), seen)

    def _run_canary(self) -> None:
        """One golden vector, where its time has come: the answer is made, and its outputs are copies."""
        if self._canary is None or not self.canary_s:
            return
        now_s = time.monotonic()
        if now_s >= self._canary_due_s:
            self._canary_due_s = now_s + self.canary_s / self._canary.vectors
            self._canary.one()

    def _is_due(self) -> bool:
        now_s = time.monotonic()
        if now_s < self._due_s:
            return False
        self._due_s = now_s + self.every_s
        return True

    def _look(self) -> None:
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        raws, given, answers = zip(*waiting)
        self._take(thin := np.stack(raws), thin, np.stack(given), answers)

    def _take(self, thin: np.ndarray, raws: np.ndarray, given: np.ndarray, answers: Sequence[Any]) -> None:
        found = self._of_output(raws, given, answers)
        values = np.concatenate([self._of_raw(thin), found.values], axis=1)
        ranks = self._comparison.take(values, found.classes)
        self._counts["samples"] += len(values)
        self._sums += values.sum(axis=0)
        bins = (ranks * sketch.BINS).astype(np.int64).clip(0, sketch.BINS - 1)
        for place in range(bins.shape[1]):
            self._bins[place] += np.bincount(bins[:, place], minlength=sketch.BINS)
        if found.classes is not None:
            self._classes += found.classes.sum(axis=0)
        if self._confidence is not None:
            self._moves.take(values[:, self._confidence].tolist())

    def _sketch(self) -> dict[str, Any]:
        known, latest = self._comparison, [each for each in self._comparison.latest if each is not None]
        statistics: dict[str, Any] = {}
        for place, name in enumerate(self.reference.names):
            statistics[name] = {"bins": self._bins[place].tolist(), "sum": _short(self._sums[place])}
            if latest:
                most = max(latest, key=lambda each: each.evidence[:, place].max())
                statistics[name]["latest"] = {
                    "samples": most.n,
                    "mean": _short(most.values[place]),
                    "rank": _short(most.ranks[place]),
                    "spread": _short(most.spreads[place]),
                    "worth": _short(most.worth[place]),
                    "evidence": [_short(each) for each in most.evidence[:, place]],
                }
        made: dict[str, Any] = {"format": sketch.FORMAT, "reference": self.reference.digest, "parts": 1}
        made.update(**self._counts, statistics=statistics)
        if len(self._classes):
            made["classes"] = dict(zip(outputs.class_labels(self.manifest), self._classes.tolist()))
            made["classes_latest"] = {}
            for place, label in enumerate(known.labels if latest else ()):
                most = max(latest, key=lambda each: each.class_evidence[place])
                shares = most.classes[place], known.shares[place], most.class_evidence[place]
                made["classes_latest"][label] = [_short(each) for each in shares]
        made["recent"] = {"refused": sum(self._recent), "of": len(self._recent), "why": self._why}
        change = self._moves.change
        if change is not None:  # neighbours that are alike deceive ADWIN
            fell = bool(change["since"] < change["before"])
            made["confidence"] = {**change, "alarm": fell and self._is_mixed(latest)}
        made["canary"] = self._canary_state()
        return made

    def _is_mixed(self, latest: list[LatestWindow]) -> bool:
        """Whether the confidences of neighbours are as good as independent, in the largest window there is."""
        place = self._confidence
        return bool(latest and place is not None and latest[-1].worth[place] * MIXED > latest[-1].n)

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
