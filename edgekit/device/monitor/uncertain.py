"""The most uncertain samples of each day, kept for the workstation: what a person should label next.

This is uncertainty sampling (Lewis & Gale 1994, "A sequential algorithm for training text classifiers"), by the margin
between the two best classes if there are classes. A task whose answers have no confidence is sampled evenly: each
sample draws a random number, and the highest ones of the day are kept (Vitter 1985, "Random sampling with a
reservoir").

A separate thread writes the samples, and rests 25 times as long as each write took, so that inference neither waits for
the disk nor fails if it is full.
"""

from __future__ import annotations

import atexit
import heapq
import io
import json
import os
import random
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.device.monitor.sample_folder import SampleFolder
from edgekit.runner.bundle.manifest_rules import BOX_TASKS
from edgekit.runner.errors import InputError, ResourceError
from edgekit.runner.files import write_atomically

if TYPE_CHECKING:
    from edgekit.runner.bundle.manifest import Manifest
    from edgekit.runner.errors import RunnerError

PER_DAY, MOST_BYTES = 100, 100_000_000
DAY_S = 86_400
PENDING_BYTES = 16_000_000
"""Limit for samples in memory that are not written yet."""
REST_FACTOR, AFTER_FAILURE_S, CLOSE_S = 25, 30.0, 10.0
ANSWER_FIELDS = ("label", "index", "labels", "values", "is_anomaly", "score", "boxes", "shares")
"""Fields of an answer that are written if the answer has them. Other fields follow from the outputs."""


class UncertainSamples:
    """An observer that keeps samples in a folder.

    Parameters
    ----------
    manifest, identity
        The manifest and the identity of the bundle whose answers are observed.
    folder : str or path-like
        Where to keep the samples. A missing folder is created, readable only by its owner.
    per_day : int
        Maximum number of samples per day (UTC).
    most_bytes : int
        Maximum size of all samples.
    clock : callable
        Returns seconds since 1970.

    Raises
    ------
    InputError
        A limit is not a whole number from 1.
    ResourceError
        The folder cannot be created or read.
    """

    def __init__(
        self,
        manifest: Manifest,
        identity: str,
        folder: str | os.PathLike[str],
        per_day: int = PER_DAY,
        most_bytes: int = MOST_BYTES,
        clock: Callable[[], float] = time.time,
    ) -> None:
        for what, value in (("per_day", per_day), ("most_bytes", most_bytes)):
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise InputError(f"keep: {what}: got {value!r}; use a whole number from 1")
        self._folder = SampleFolder(folder, per_day, most_bytes)
        self._manifest, self._identity, self._clock = manifest, identity[:12], clock
        self._uncertainty, self.by = _uncertainty_measure(manifest.task)
        sample_bytes = int(np.prod(manifest.raw.shape)) * np.dtype(manifest.raw.dtype).itemsize
        self._max_pending = max(1, min(per_day, PENDING_BYTES // max(1, sample_bytes)))
        self._waiting: list[tuple[Any, ...]] = []  # a heap of samples of this day
        self._older: list[tuple[Any, ...]] = []  # samples of earlier days
        self._number, self._lock, self._more = count(), threading.Lock(), threading.Event()
        self._thread: threading.Thread | None = None
        self._end, self._described = threading.Event(), False
        self._writing = threading.Lock()
        self._today, self._day, self._threshold = -1.0, "", -1.0
        self._days: set[str] = set()
        self._started = time.monotonic()
        self.written = self.failures = 0

    @classmethod
    def of(cls, model: Any, folder: str | os.PathLike[str], **limits: Any) -> UncertainSamples:
        """Create the observer for an opened model. `limits` are the parameters after the folder."""
        return cls(model.manifest, model.bundle.identity, folder, **limits)

    def answered(self, raw: np.ndarray, outputs: np.ndarray, prediction: Any) -> None:
        """Keep a sample if it is more uncertain than the samples of the same day that it would replace."""
        uncertainty = min(1.0, max(0.0, self._uncertainty(prediction)))
        now = self._clock()
        if now // DAY_S != self._today:
            self._start_day(now)
        if uncertainty <= self._threshold:
            return
        with self._lock:
            is_full = len(self._waiting) >= self._max_pending
            if is_full and uncertainty <= self._waiting[0][0]:
                return
            entry = (uncertainty, next(self._number), self._day, now, raw.copy(), outputs.copy(), prediction)
            (heapq.heappushpop if is_full else heapq.heappush)(self._waiting, entry)
        if self._thread is None:
            self._start()
        self._more.set()

    def keep(self, raw: np.ndarray, outputs: np.ndarray, prediction: Any) -> None:
        """Keep a sample that a person chose, now and in this thread. Its uncertainty is 1, so it is removed last.

        Parameters
        ----------
        raw : numpy.ndarray
            The sample, as an observer receives it.
        outputs : numpy.ndarray
            The model's outputs.
        prediction : object
            The answer.

        Raises
        ------
        ResourceError
            It cannot be written.
        """
        now = self._clock()
        day = time.strftime("%Y-%m-%d", time.gmtime(min(max(now, 0.0), 253402300799.0)))
        try:
            with self._writing:
                if not self._described:
                    self._describe()
                is_kept = self._folder.add(day, 1.0, int(1000 * now), self._pack(1.0, now, raw, outputs, prediction))
        except OSError as error:
            raise ResourceError(f"keep: {self._folder.folder}: {error.strerror or error}") from None
        if not is_kept:
            raise ResourceError(
                f"keep: {self._folder.folder}: full of samples that a person chose; pack and remove some"
            )
        self.written += 1

    @property
    def waiting(self) -> int:
        """The number of samples in memory that are not written yet."""
        return len(self._waiting) + len(self._older)

    def refused(self, error: RunnerError) -> None:
        """Ignore a refused sample, which is not kept."""

    def dropped(self, count: int) -> None:
        """Ignore dropped windows, which are not kept."""

    def close(self) -> None:
        """Write what is pending, for ten seconds at most."""
        atexit.unregister(self.close)
        self._end.set()
        self._more.set()
        if self._thread is not None:
            self._thread.join(CLOSE_S)

    def _start_day(self, now_s: float) -> None:
        """Start another day, unless the clock has only jumped.

        Two days may start in any case, and one more for each 24 hours that pass on the monotonic clock. Any other new
        day is taken for a jump.
        """
        self._today = now_s // DAY_S
        day = time.strftime("%Y-%m-%d", time.gmtime(min(max(now_s, 0.0), 253402300799.0)))
        if day not in self._days and len(self._days) >= 2 + (time.monotonic() - self._started) // DAY_S:
            return
        self._days.add(day)
        with self._lock:
            self._older = heapq.nlargest(self._max_pending, self._older + self._waiting)
            self._waiting, self._day, self._threshold = [], day, -1.0

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._work, name="edgerun-keep", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def _work(self) -> None:
        while True:
            self._more.wait()
            with self._lock:
                waiting = self._older or self._waiting
                if not waiting:
                    if self._end.is_set():
                        return
                    self._more.clear()
                    continue
                entry = waiting.pop(max(range(len(waiting)), key=lambda index: waiting[index][:2]))
                heapq.heapify(waiting)
            self._end.wait(self._write(*entry))

    def _write(self, uncertainty: float, _: int, day: str, now_s: float, *content: Any) -> float:
        """Write a sample. Returns how many seconds to rest."""
        started = time.monotonic()
        try:
            data = self._pack(uncertainty, now_s, *content)
            with self._writing:
                if not self._described:
                    self._describe()
                self.written += self._folder.add(day, uncertainty, int(1000 * now_s), data)
                threshold = self._folder.least(day)
            with self._lock:  # so that a new day does not start with yesterday's threshold
                if day == self._day:
                    self._threshold = threshold
        except Exception as error:  # whatever went wrong, the next sample may succeed
            self.failures += 1
            if self.failures == 1:
                with suppress(RuntimeWarning):  # the program may turn warnings into errors
                    warnings.warn(
                        f"keep: {self._folder.folder}: {error}; samples are lost", RuntimeWarning, stacklevel=2
                    )
            return AFTER_FAILURE_S
        return min(AFTER_FAILURE_S, REST_FACTOR * (time.monotonic() - started))

    def _pack(self, uncertainty: float, now_s: float, raw: np.ndarray, outputs: np.ndarray, prediction: Any) -> bytes:
        answer = {name: getattr(prediction, name) for name in ANSWER_FIELDS if hasattr(prediction, name)}
        if self._manifest.task == "segmentation":
            del answer["labels"]  # the labels are in the bundle
        about = {"bundle": self._identity, "time": now_s, "doubt": uncertainty, "by": self.by, "answer": answer}
        text = json.dumps(about, default=vars).encode()
        buffer = io.BytesIO()
        np.savez_compressed(buffer, raw=raw, outputs=outputs, about=np.frombuffer(text, np.uint8))
        return buffer.getvalue()

    def _describe(self) -> None:
        from dataclasses import asdict

        manifest = self._manifest
        facts = {key: getattr(manifest, key) for key in ("name", "version", "target", "variant", "task", "labels")}
        facts.update(identity=self._identity, raw=asdict(manifest.raw))
        path = self._folder.folder / f"bundle-{self._identity}.json"
        if not path.exists():
            with suppress(FileNotFoundError):  # another observer of this process wrote it at the same moment
                write_atomically(path, json.dumps(facts, indent=1).encode())
        self._described = True


def _uncertainty_measure(task: str) -> tuple[Callable[[Any], float], str]:
    """Return a function that computes the uncertainty of an answer, from 0 to 1, and the name of the function."""
    if task == "classification":
        return _margin, "margin"
    if task == "multi_label":
        return (
            lambda answer: 1 - 2 * min(abs(probability - 0.5) for probability in answer.probabilities.values()),
            "margin",
        )
    if task == "anomaly":
        return (
            lambda answer: answer.threshold / (answer.threshold + abs(answer.score - answer.threshold) or 1.0),
            "threshold",
        )
    if task in BOX_TASKS:
        return _weakest_box, "weakest box"
    return lambda answer: random.random(), "chance"


def _margin(answer: Any) -> float:
    """Return 1 minus the margin between the two best classes.

    If an answer lists only one class, the margin is the smallest that its probability allows.
    """
    (_, best), *rest = answer.top
    second: float = rest[0][1] if rest else min(best, 1 - best)
    return 1.0 - float(best) + second


def _weakest_box(answer: Any) -> float:
    """Return the uncertainty of the weakest box.

    If there are no boxes, it is random, because nothing shows whether an object was missed.
    """
    return 1.0 - float(answer.boxes[-1].probability) if answer.boxes else random.random() / 2
