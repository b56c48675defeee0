"""The loop of `edgerun live`: frame, model, smoothing, rules and events.

One thread runs all models, one call at a time, because the interpreter has threads of its own. Everything that may
wait for others (sinks, the terminal, the page, the record) has its own thread and a bounded queue, so it cannot stop
the loop.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

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

    def answer(self, frame: Frame, observed: _Observed) -> tuple[Answer, list[Event]]:
        """Answer a frame. Raises InputError or BackendError without an answer; the states then start from zeros."""
        taken = time.monotonic()
        if self._states is not None and frame.number != self._next:  # frames between were dropped
            self._states = self.model.states()
        self._next = frame.number + 1
        size: tuple[int, int] | None = None
        raw = frame.data
        if self._is_picture:
            size = raw.shape[1], raw.shape[0]
            raw = raw_frames.fit_frame(raw, self.model.manifest.raw)
        fitted = time.monotonic()
        try:
            prediction = self.model.predict(raw, size=size, states=self._states)
        except RunnerError:
            self._states = self.model.states()
            raise
        smoothed = self._smooth(prediction) if self._smooth else None
        answer = Answer(frame.source, frame.number, frame.time_s, size or (0, 0), _content(smoothed or prediction))
        events: list[Event] = self.rules.update(answer)
        self.shown = Shown(frame, *observed.last, prediction, smoothed)
        done, spent = time.monotonic(), prediction.timing_ms
        prepare_ms = 1e3 * (fitted - taken) + spent["preprocess"]
        rest_ms = 1e3 * (done - taken) - prepare_ms - spent["execute"]
        self.timing.add(done, (1e3 * (taken - frame.arrived_s), prepare_ms, spent["execute"], rest_ms))
        return answer, events


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
    """

    def __init__(
        self,
        feeds: Sequence[Feed],
        lanes: Sequence[Lane],
        on_answer: Callable[[Lane, Answer, list[Event]], object],
        report: Callable[[str], object],
    ) -> None:
        self.feeds, self.lanes = Feeds(feeds), tuple(lanes)
        self._on_answer, self._report = on_answer, report
        self._observed: dict[int, _Observed] = {}
        for lane in lanes:
            if id(lane.model) not in self._observed:
                self._observed[id(lane.model)] = _Observed()
                lane.model.observers.add(self._observed[id(lane.model)])
        self._of_source = {feed.name: [lane for lane in lanes if lane.source == feed.name] for feed in feeds}
        self._reported_s: dict[str, float] = {}
        self._failures = 0
        self._stopping = threading.Event()
        self.called_s: float | None = None
        """`time.monotonic()` at which the call of a model began, or None between two calls."""

    def run(self, frames: int | None = None) -> None:
        """Answer until every source has ended, `stop` is called, or `frames` frames were answered.

        Raises
        ------
        InputError
            A source cannot continue, or did not come to its end.
        BackendError
            The interpreter failed `MOST_FAILURES` times in a row.
        """
        answered = 0
        self.feeds.start()
        while not self._stopping.is_set() and (frames is None or answered < frames):
            taken = self.feeds.take(TAKE_S)
            if self.feeds.problem is not None:
                raise self.feeds.problem
            if taken is not None:
                self._answer(*taken)
                answered += 1
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

    def _answer(self, feed: Feed, frame: Frame) -> None:
        for lane in self._of_source[feed.name]:
            self.called_s = time.monotonic()
            try:
                answer, events = lane.answer(frame, self._observed[id(lane.model)])
                self._failures = 0
            except InputError as error:
                lane.refused += 1
                self._report_refused(feed.name, error)
                continue
            except BackendError as error:
                self._failures += 1
                if self._failures >= MOST_FAILURES:
                    raise BackendError(f"{error}; {self._failures} frames in a row got no answer") from None
                lane.refused += 1
                self._report_refused(feed.name, error)
                continue
            finally:
                self.called_s = None
            self._on_answer(lane, answer, events)

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
