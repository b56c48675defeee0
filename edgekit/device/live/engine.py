"""The loop of `edgerun live`: frame, model, smoothing, rules and events.

One thread runs all models, one call at a time, because the interpreter has threads of its own. If asked for, several
threads with copies of the models answer frames of different sources (`copies`); everything but the models' calls is
still done by one thread at a time. Everything that may wait for others (sinks, the terminal, the page, the record) has
its own thread and a bounded queue, so it cannot stop the loop.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from edgekit.device.live.copies import Copies
from edgekit.device.live.feeds import Feed, Feeds
from edgekit.device.live.timing import Timing
from edgekit.device.live.types import Answer, Event, Frame
from edgekit.runner import smoothing
from edgekit.runner.errors import BackendError, InputError, RunnerError
from edgekit.runner.inputs import raw_frames

if TYPE_CHECKING:
    from edgekit.runner.model import Model

KINDS = {"image": "picture", "audio": "audio", "window": "rows", "vector": "rows"}
"""For each kind of raw sample, the kind of the sources that give it."""
MOST_FAILURES = 10
"""The engine ends after this many failures of the interpreter in a row."""
TAKE_S = 0.25
TOP = 5
"""How many classes a classification lists."""
STALL_S = 30.0
"""A model whose call takes longer than this has stalled."""
REFUSED_EVERY_S = 60.0
"""Minimum time between two lines about refused frames of a source."""


class Shown(NamedTuple):
    """What a model last answered to a source: for the page, and for samples that are kept."""

    frame: Frame
    raw: np.ndarray
    outputs: np.ndarray
    prediction: Any
    smoothed: Any

    @property
    def headline(self) -> str:
        """The answer in a few words."""
        text: str = (self.smoothed or self.prediction).lines()[0]
        return text


class Lane:
    """The answers of one model to one source, with their own smoothing, recurrent states and rules."""

    def __init__(self, model: Model, source: str, rules: Any) -> None:
        self.model, self.source, self.rules = model, source, rules
        self.timing = Timing()
        self.refused = 0
        self.shown: Shown | None = None
        self._smooth, self._states = smoothing.make_smoother(model.manifest), model.states()
        self._is_picture = model.manifest.raw.kind == "image"
        self._next = 0

    def compute(self, frame: Frame, model: Model) -> _Computed:
        """Run a copy of the model on a frame. Raises InputError or BackendError; the states then start from zeros."""
        taken = time.monotonic()
        if self._states is not None and frame.number != self._next:  # frames between were dropped
            self._states = self.model.states()
        self._next = frame.number + 1
        size: tuple[int, int] | None = None
        raw = frame.data
        if self._is_picture:
            size = raw.shape[1], raw.shape[0]
            raw = raw_frames.fit_frame(raw, model.manifest.raw)
        fitted, started = time.monotonic(), perf_counter_ns()
        try:
            x, sample = model.prepare_with_sample(raw)
            prepared = perf_counter_ns()
            outputs = model.execute(x, self._states)
        except RunnerError:
            self._restart()
            raise
        times_ms = {"preprocess": (prepared - started) / 1e6, "execute": (perf_counter_ns() - prepared) / 1e6}
        prepare_ms = 1e3 * (fitted - taken) + times_ms["preprocess"]
        return _Computed(frame, size, raw, sample, outputs, times_ms, taken, prepare_ms)

    def answer(self, computed: _Computed, observed: _Observed) -> tuple[Answer, list[Event]]:
        """Derive the answer from a model's outputs. Raises InputError or BackendError as `compute` does."""
        frame, size, taken, spent = computed.frame, computed.size, computed.taken_s, computed.times_ms
        try:
            prediction = self.model.answer(computed.raw, computed.outputs, TOP, spent, computed.sample, size)
        except RunnerError:
            self._restart()
            raise
        smoothed = self._smooth(prediction) if self._smooth else None
        answer = Answer(frame.source, frame.number, frame.time_s, size or (0, 0), _content(smoothed or prediction))
        events: list[Event] = self.rules.update(answer)
        self.shown = Shown(frame, *observed.last, prediction, smoothed)
        done = time.monotonic()
        rest_ms = 1e3 * (done - taken) - computed.prepare_ms - spent["execute"]
        self.timing.add(done, (1e3 * (taken - frame.arrived_s), computed.prepare_ms, spent["execute"], rest_ms))
        return answer, events

    def _restart(self) -> None:
        self._states = self.model.states()


class _Computed(NamedTuple):
    """The outputs of a model for a frame."""

    frame: Frame
    size: tuple[int, int] | None
    raw: np.ndarray
    sample: np.ndarray | None
    outputs: np.ndarray
    times_ms: dict[str, float]
    taken_s: float
    prepare_ms: float


def _content(prediction: Any) -> dict[str, Any]:
    """Return the answer for JSON without masks, which no rule needs and whose encoding takes long."""
    if hasattr(prediction, "mask"):
        return {"shares": prediction.shares, "timing_ms": prediction.timing_ms}
    if hasattr(prediction, "boxes") and any(hasattr(each, "mask") for each in prediction.boxes):
        boxes = [
            {"label": each.label, "probability": each.probability, "box": list(each.box)} for each in prediction.boxes
        ]
        return {"boxes": boxes, "timing_ms": prediction.timing_ms}
    content: dict[str, Any] = prediction.to_dict()
    return content


class _Observed:
    """An observer that remembers a model's last sample and outputs."""

    def __init__(self) -> None:
        self.last: tuple[np.ndarray, np.ndarray] = (np.empty(0), np.empty(0))

    def answered(self, raw: np.ndarray, outputs: np.ndarray, prediction: Any) -> None:
        self.last = raw, outputs

    def refused(self, error: RunnerError) -> None:
        pass

    def dropped(self, count: int) -> None:
        pass

    def close(self) -> None:
        pass


class Engine:
    """Answers the frames of sources until they have ended or `stop` is called.

    Parameters
    ----------
    feeds : sequence of Feed
        The sources.
    lanes : sequence of Lane
        Which model answers which source. A source may have several.
    on_answer : callable
        Called with the lane, the answer and its events. It must not wait for anything.
    report : callable
        Called with a line about what is wrong with a source.
    copies : Copies, optional
        The models of each thread that answers frames. By default, one thread uses the models themselves.
    """

    def __init__(
        self,
        feeds: Sequence[Feed],
        lanes: Sequence[Lane],
        on_answer: Callable[[Lane, Answer, list[Event]], object],
        report: Callable[[str], object],
        copies: Copies | None = None,
    ) -> None:
        self.feeds, self.lanes = Feeds(feeds), tuple(lanes)
        self._on_answer, self._report = on_answer, report
        self._copies = copies or Copies()
        self._one = threading.Lock()
        """Held for everything but the models' calls."""
        self._taken = 0
        self._problem: BaseException | None = None
        self._calls: dict[int, float] = {}
        self._observed: dict[int, _Observed] = {}
        for lane in lanes:
            if id(lane.model) not in self._observed:
                self._observed[id(lane.model)] = _Observed()
                lane.model.observers.add(self._observed[id(lane.model)])
        self._of_source = {feed.name: [lane for lane in lanes if lane.source == feed.name] for feed in feeds}
        self._reported_s: dict[str, float] = {}
        self._failures = 0
        self._stopping = threading.Event()

    @property
    def called_s(self) -> float | None:
        """`time.monotonic()` at which the oldest call of a model began, or None while there is none."""
        return min(tuple(self._calls.values()), default=None)

    def run(self, frames: int | None = None) -> None:
        """Answer until every source has ended, `stop` is called, or `frames` frames were answered.

        Raises
        ------
        InputError
            A source cannot continue, or did not come to its end.
        BackendError
            The interpreter failed `MOST_FAILURES` times in a row.
        """
        self.feeds.start()
        helping = [
            threading.Thread(target=self._help, args=(number, frames), name=f"edgerun model {number}", daemon=True)
            for number in range(1, len(self._copies))
        ]
        for thread in helping:
            thread.start()
        try:
            self._work(0, frames)
        finally:
            self._stopping.set()
            for thread in helping:  # so that a signal is not delayed
                while thread.is_alive():
                    thread.join(TAKE_S)
        if self._problem is not None:
            raise self._problem

    def _help(self, number: int, frames: int | None) -> None:
        try:
            self._work(number, frames)
        except BaseException as error:  # raised by `run`
            self._problem = error
            self.stop()

    def _work(self, number: int, frames: int | None) -> None:
        """Answer frames with the models of a thread."""
        while not self._stopping.is_set():
            taken = self.feeds.take(TAKE_S)
            if self.feeds.problem is not None:
                raise self.feeds.problem
            if taken is not None:
                with self._one:
                    self._taken += 1
                    if frames is not None and self._taken >= frames:
                        self.stop()
                    if frames is not None and self._taken > frames:
                        return
                self._answer(*taken, number)
                self.feeds.done(taken[0])
            elif self.feeds.have_ended:
                self._raise_failure()
                return

    def stop(self) -> None:
        """Let `run` return after the frame that is being answered. Signal handlers and other threads may call it."""
        self._stopping.set()

    def close(self, timeout_s: float = 1.0) -> None:
        """Close the sources."""
        self.feeds.close(timeout_s)

    @property
    def stalled_s(self) -> float:
        """For how many seconds the present call of a model has taken, or 0 between two calls."""
        called_s = self.called_s
        return 0.0 if called_s is None else time.monotonic() - called_s

    def _answer(self, feed: Feed, frame: Frame, thread: int) -> None:
        copies = self._copies.threads[thread]
        for lane in self._of_source[feed.name]:
            self._calls[thread] = time.monotonic()
            try:
                computed = lane.compute(frame, copies.get(id(lane.model), lane.model))
                with self._one:
                    answer, events = lane.answer(computed, self._observed[id(lane.model)])
                    self._failures = 0
            except (InputError, BackendError) as error:
                with self._one:
                    self._refuse(lane, error)
                continue
            finally:
                self._calls.pop(thread, None)
            with self._one:
                self._on_answer(lane, answer, events)

    def _refuse(self, lane: Lane, error: RunnerError) -> None:
        """Count a frame without an answer. Raises BackendError if there were too many in a row."""
        lane.model.observers.refused(error)
        if isinstance(error, BackendError):
            self._failures += 1
            if self._failures >= MOST_FAILURES:
                raise BackendError(f"{error}; {self._failures} frames in a row got no answer") from None
        lane.refused += 1
        self._report_refused(lane.source, error)

    def _raise_failure(self) -> None:
        """Raise InputError if a source has ended by a failure, as a film does that is damaged in the middle."""
        for feed in self.feeds.feeds:
            if problem := feed.source.status().detail:
                raise InputError(problem)

    def _report_refused(self, source: str, error: RunnerError) -> None:
        now = time.monotonic()
        if now - self._reported_s.get(source, float("-inf")) >= REFUSED_EVERY_S:
            self._reported_s[source] = now
            self._report(f"{source}: a frame got no answer: {error}")
