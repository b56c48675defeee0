"""The most doubtful samples of each day, kept for the desk: what a person should label next.

That is uncertainty sampling (Lewis & Gale 1994, "A sequential algorithm for training text classifiers"), by the margin
between the two best classes where there are classes. A task whose answers carry no confidence is sampled evenly: each
sample draws a number, and the highest of the day are kept (Vitter 1985, "Random sampling with a reservoir").

A thread writes, and rests 25 times as long as it wrote: inference neither waits for a disk nor feels one that is full.
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
from edgekit.runner.errors import InputError
from edgekit.runner.files import write_atomically

if TYPE_CHECKING:
    from edgekit.runner.bundle.manifest import Manifest
    from edgekit.runner.errors import RunnerError

PER_DAY, MOST_BYTES = 100, 100_000_000
DAY_S = 86_400
PENDING_BYTES = 16_000_000
"""Of samples in memory that are not written yet."""
REST_FACTOR, AFTER_FAILURE_S, CLOSE_S = 25, 30.0, 10.0
ANSWER_FIELDS = ("label", "index", "labels", "values", "is_anomaly", "score", "boxes", "shares")
"""What is written of an answer, where it has it: the rest follows from the outputs."""


class UncertainSamples:
    """An observer that keeps samples in a folder. Nothing is kept unless somebody asks for it.

    Parameters
    ----------
    manifest, identity
        Of the bundle that answers.
    folder
        Where to; it is made where it is missing, and then only its owner can read it.
    per_day
        The most samples of a day (UTC).
    most_bytes
        The most that all samples take.
    clock
        Seconds since 1970.

    Raises
    ------
    InputError
        A limit is no whole number from 1.
    ResourceError
        The folder cannot be made or read.
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
        self._kept = SampleFolder(folder, per_day, most_bytes)
        self._manifest, self._identity, self._clock = manifest, identity[:12], clock
        self._doubt, self.by = _uncertainty_measure(manifest.task)
        sample_bytes = int(np.prod(manifest.raw.shape)) * np.dtype(manifest.raw.dtype).itemsize
        self._room = max(1, min(per_day, PENDING_BYTES // max(1, sample_bytes)))
        self._waiting: list[tuple[Any, ...]] = []  # a heap, of this day
        self._older: list[tuple[Any, ...]] = []
        self._number, self._lock, self._more = count(), threading.Lock(), threading.Event()
        self._thread: threading.Thread | None = None
        self._end, self._described = threading.Event(), False
        self._today, self._day, self._least = -1.0, "", -1.0
        self._days: set[str] = set()
        self._started = time.monotonic()
        self.written = self.failures = 0

    @classmethod
    def of(cls, model: Any, folder: str | os.PathLike[str], **limits: Any) -> UncertainSamples:
        """For an opened model; `limits` are the parameters behind the folder."""
        return cls(model.manifest, model.bundle.identity, folder, **limits)

    def answered(self, raw: np.ndarray, outputs: np.ndarray, prediction: Any) -> None:
        """Remember a sample if it is more doubtful than those of its day that it would drive out."""
        doubt = min(1.0, max(0.0, self._doubt(prediction)))
        now = self._clock()
        if now // DAY_S != self._today:
            self._turn(now)
        if doubt <= self._least:
            return
        with self._lock:
            full = len(self._waiting) >= self._room
            if full and doubt <= self._waiting[0][0]:
                return
            each = (doubt, next(self._number), self._day, now, raw.copy(), outputs.copy(), prediction)
            (heapq.heappushpop if full else heapq.heappush)(self._waiting, each)
        if self._thread is None:
            self._start()
        self._more.set()

    @property
    def waiting(self) -> int:
        """Samples in memory that are not written yet."""
        return len(self._waiting) + len(self._older)

    def refused(self, error: RunnerError) -> None:
        """A sample that was refused is not kept."""

    def dropped(self, count: int) -> None:
        """Nor is one that nobody answered."""

    def close(self) -> None:
        """Write what waits, for ten seconds at most."""
        atexit.unregister(self.close)
        self._end.set()
        self._more.set()
        if self._thread is not None:
            self._thread.join(CLOSE_S)

    def _turn(self, now: float) -> None:
        """Another day. A clock that jumps opens two at most, and one more for each 24 hours that really went by."""
        self._today = now // DAY_S
        day = time.strftime("%Y-%m-%d", time.gmtime(min(max(now, 0.0), 253402300799.0)))
        if day not in self._days and len(self._days) >= 2 + (time.monotonic() - self._started) // DAY_S:
            return
        self._days.add(day)
        with self._lock:
            self._older = heapq.nlargest(self._room, self._older + self._waiting)
            self._waiting, self._day, self._least = [], day, -1.0

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
                each = waiting.pop(max(range(len(waiting)), key=lambda place: waiting[place][:2]))
                heapq.heapify(waiting)
            self._end.wait(self._write(*each))

    def _write(self, doubt: float, _: int, day: str, now: float, *content: Any) -> float:
        """Seconds to rest for."""
        started = time.monotonic()
        try:
            if not self._described:
                self._describe()
            self.written += self._kept.add(day, doubt, int(1000 * now), self._packed(doubt, now, *content))
            least = self._kept.least(day)
            with self._lock:  # or the threshold of yesterday could be that of the day which begins meanwhile
                if day == self._day:
                    self._least = least
        except Exception as error:  # whatever it is, the next one may fit again
            self.failures += 1
            if self.failures == 1:
                with suppress(RuntimeWarning):  # where warnings are errors
                    warnings.warn(f"keep: {self._kept.folder}: {error}; samples are lost", RuntimeWarning, stacklevel=2)
            return AFTER_FAILURE_S
        return min(AFTER_FAILURE_S, REST_FACTOR * (time.monotonic() - started))

    def _packed(self, doubt: float, now: float, raw: np.ndarray, outputs: np.ndarray, prediction: Any) -> bytes:
        shown = {name: getattr(prediction, name) for name in ANSWER_FIELDS if hasattr(prediction, name)}
        if self._manifest.task == "segmentation":
            del shown["labels"]  # the bundle's
        about = {"bundle": self._identity, "time": now, "doubt": doubt, "by": self.by, "answer": shown}
        text = json.dumps(about, default=vars).encode()
        buffer = io.BytesIO()
        np.savez_compressed(buffer, raw=raw, outputs=outputs, about=np.frombuffer(text, np.uint8))
        return buffer.getvalue()

    def _describe(self) -> None:
        from dataclasses import asdict

        manifest = self._manifest
        facts = {key: getattr(manifest, key) for key in ("name", "version", "target", "variant", "task", "labels")}
        facts.update(identity=self._identity, raw=asdict(manifest.raw))
        path = self._kept.folder / f"bundle-{self._identity}.json"
        if not path.exists():
            with suppress(FileNotFoundError):  # another observer of this process wrote it in this moment
                write_atomically(path, json.dumps(facts, indent=1).encode())
        self._described = True


def _uncertainty_measure(task: str) -> tuple[Callable[[Any], float], str]:
    """The function from an answer to its doubt, from 0 to 1, and its name."""
    if task == "classification":
        return _margin, "margin"
    if task == "multi_label":
        return lambda found: 1 - 2 * min(abs(share - 0.5) for share in found.probabilities.values()), "margin"
    if task == "anomaly":
        return (
            lambda found: found.threshold / (found.threshold + abs(found.score - found.threshold) or 1.0),
            "threshold",
        )
    if task == "detection":
        return _weakest_box, "weakest box"
    return lambda found: random.random(), "chance"


def _margin(found: Any) -> float:
    """Of an answer that lists one class alone, the least margin that its probability leaves open."""
    (_, best), *others = found.top
    second: float = others[0][1] if others else min(best, 1 - best)
    return 1.0 - float(best) + second


def _weakest_box(found: Any) -> float:
    """A picture without boxes draws its number: what was overlooked has no probability."""
    return 1.0 - float(found.boxes[-1].probability) if found.boxes else random.random() / 2
