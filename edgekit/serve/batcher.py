"""The queue before one model, and the measured curve that it batches by.

Nobody waits while the model is idle. When it is free, it takes as many samples as pay by the curve and still meet the
earliest deadline. What cannot meet its deadline is refused at the door; what was cancelled or has expired never runs. A
job that is running is finished even where its caller has gone.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import cached_property
from time import monotonic, perf_counter_ns
from typing import NamedTuple

import numpy as np

from edgekit.serve.errors import DEADLINE_PASSED, busy, late
from edgekit.serve.timeline import CURRENT, error_type

SIZES = (1, 2, 4, 8, 16)
"""Batches that are tried; other numbers of samples are split into these."""
GAIN = 0.10
"""A batch has to save this share of a sample's time against the size before it."""
HAND_OVER_MS = 0.05
"""What it costs a request to wait in the queue for others, in CPU time; a batch that saves less loses (measured)."""
INLINE_MS = 1.0
"""Below this, a call costs less than handing it to a thread and back (0.13 ms) delays those that wait."""
ROUNDS = 25
LONGEST_MEASUREMENT_S = 2.0


@dataclass(frozen=True)
class Curve:
    """Median milliseconds of one call, by the number of its samples; 1 is always there."""

    ms: Mapping[int, float]

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Sizes of calls for a request of many samples, ascending: each saves `GAIN` against the one before."""
        kept = [1]
        for size in sorted(self.ms):
            if size > 1 and self.ms[size] / size <= (1 - GAIN) * self.ms[kept[-1]] / kept[-1]:
                kept.append(size)
        return tuple(kept)

    @cached_property
    def pays(self) -> bool:
        """Whether requests that came together are worth joining: a sample saves more than the queue costs it."""
        return any(self.ms[1] - self.ms[size] / size > HAND_OVER_MS for size in self.sizes)

    @property
    def is_inline(self) -> bool:
        """Whether a single call is too short to be handed to a thread."""
        return self.ms[1] < INLINE_MS

    @property
    def gain(self) -> float:
        """Samples per second of the best size, as a multiple of those of single calls."""
        return max(self.ms[1] * size / self.ms[size] for size in self.sizes)

    def take(self, waiting: int, slack_ms: float | None = None) -> int:
        """How many of those that wait go next: the largest size that pays and still meets the earliest deadline."""
        if not self.pays:
            return 1
        fitting = [size for size in self.sizes if size <= waiting and (slack_ms is None or self.ms[size] <= slack_ms)]
        return fitting[-1] if fitting else 1

    def total_ms(self, count: int) -> float:
        """What `count` samples take, in the sizes that pay."""
        if count <= 1:
            return self.ms[1] * count
        total = 0.0
        for size in reversed(self.sizes):
            calls, count = divmod(count, size)
            total += calls * self.ms[size]
        return total

    def verdict(self) -> str:
        """One sentence for the log and the page."""
        single = f"one sample takes {self.ms[1]:.3g} ms"
        if not self.pays:
            return f"{single}; joining requests to batches does not pay here and is off"
        return f"{single}; batches of {self.sizes[-1]} give {self.gain:.2f} times as many samples a second"


def measure(call: Callable[[int], Callable[[], object] | None]) -> Curve:
    """The curve of a model; `call(n)` gives a function that runs n samples, None where n cannot be run.

    Sizes take turns, so that a disturbance meets all of them alike; medians of at most `ROUNDS` rounds.
    """
    calls = {size: made for size in SIZES if (made := call(size)) is not None}
    for run in calls.values():
        run()
    taken: dict[int, list[int]] = {size: [] for size in calls}
    begun = perf_counter_ns()
    for _ in range(ROUNDS):
        for size, run in calls.items():
            started = perf_counter_ns()
            run()
            taken[size].append(perf_counter_ns() - started)
        if perf_counter_ns() - begun > LONGEST_MEASUREMENT_S * 1e9:
            break
    return Curve({size: sorted(times)[len(times) // 2] / 1e6 for size, times in taken.items()})


Execute = Callable[[np.ndarray], np.ndarray]
"""Model inputs (n, …) to outputs (n, …), n one of the curve's sizes."""


class Answer(NamedTuple):
    """Outputs (n, …) of a job's own samples; how long it waited, and how long the calls took that it was part of."""

    outputs: np.ndarray
    queue_ns: int
    execute_ns: int
    batch: int

    @staticmethod
    def together(answers: list[Answer]) -> Answer:
        """Of the windows of one recording, as one answer of as many samples."""
        if len(answers) == 1:
            return answers[0]
        outputs = np.concatenate([each.outputs for each in answers])
        queue_ns, execute_ns = sum(each.queue_ns for each in answers), sum(each.execute_ns for each in answers)
        return Answer(outputs, queue_ns, execute_ns, len(outputs))


class Job:
    """Samples that came together. `deadline_s` is of `time.monotonic`, infinity where there is none."""

    __slots__ = ("arrived_s", "deadline_s", "future", "timeline", "x")

    def __init__(self, x: np.ndarray, deadline_s: float, future: asyncio.Future[Answer]) -> None:
        self.x = x
        self.deadline_s = deadline_s
        self.arrived_s = monotonic()
        self.future = future
        self.timeline = CURRENT.get()


class Batcher:
    """One model's queue. All methods belong to the event loop's thread; `execute` runs on `executor`, else inline."""

    def __init__(
        self,
        execute: Execute,
        curve: Curve,
        limit: int,
        executor: Executor | None = None,
        delay_s: float = 0.0,
    ) -> None:
        self._execute, self._curve, self._limit, self._executor = execute, curve, limit, executor
        self._delay_s = delay_s if curve.pays else 0.0
        self._queue: deque[Job] = deque()
        self._waiting = 0
        self._busy_until_s = 0.0
        self._running = False
        self._scheduled: asyncio.Handle | None = None
        self._waits = False

    @property
    def pending(self) -> int:
        """Samples that wait, those that run not counted."""
        return self._waiting

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits and nothing runs."""
        return not self._running and not self._queue

    def wait_s(self) -> float:
        """Seconds until one that came now would begin, by the curve."""
        left = max(0.0, self._busy_until_s - monotonic()) if self._running else 0.0
        return left + self._curve.total_ms(self._waiting) / 1e3

    def submit(self, x: np.ndarray, deadline_s: float) -> asyncio.Future[Answer] | Answer:
        """The answer if it can be had at once, else a future of it; RequestError (503) if it would come too late."""
        count = len(x)
        if self._waiting + count > self._limit:
            self._drop_dead()
        if self._waiting + count > self._limit and self._waiting:
            raise busy(f"the queue is full: {self._waiting} samples wait, at most {self._limit} may", self.wait_s())
        if monotonic() + self.wait_s() + self._curve.total_ms(count) / 1e3 > deadline_s:
            raise late(self.wait_s())
        if self._executor is None and not self._curve.pays and self.is_idle:
            return self._run_inline(x)
        job = Job(x, deadline_s, asyncio.get_running_loop().create_future())
        self._queue.append(job)
        self._waiting += count
        if not self._running and (self._scheduled is None or self._waits):
            self._schedule()
        return job.future

    def _run_inline(self, x: np.ndarray) -> Answer:
        begun = monotonic()
        error: BaseException | None = None
        try:
            outputs = _in_pieces(self._execute, self._curve, x)
        except Exception as raised:
            error = raised
            raise
        finally:
            timeline = CURRENT.get()
            if timeline is not None:
                timeline.ran(int(begun * 1e9), int(begun * 1e9), error_type(error) if error else "", len(x))
        return Answer(outputs, 0, int((monotonic() - begun) * 1e9), len(x))

    def _schedule(self) -> None:
        """After all that the sockets hold in this turn of the loop: they make one batch, and none waited for it.

        With a delay, after that, unless the batch is full or a deadline does not leave the time.
        """
        loop = asyncio.get_running_loop()
        waits = self._delay_s > 0 and self._waiting < self._curve.sizes[-1] and self._slack_s() > self._delay_s
        if self._scheduled is not None:
            if waits:  # from the first one's arrival on
                return
            self._scheduled.cancel()
        self._waits = waits
        self._scheduled = loop.call_later(self._delay_s, self._next) if waits else loop.call_soon(self._next)

    def _slack_s(self) -> float:
        """Seconds to the earliest deadline, beyond what all that waits takes."""
        return min(job.deadline_s for job in self._queue) - monotonic() - self._curve.total_ms(self._waiting) / 1e3

    def _next(self) -> None:
        self._scheduled, self._waits = None, False
        if self._running:
            return
        batch = self._take()
        if not batch:
            return
        begun = monotonic()
        self._running = True
        try:
            outcome: np.ndarray | BaseException | None = self._start(batch, begun)
        except Exception as error:  # of an interpreter or its pool: this batch's answer, not the queue's end
            outcome = error
        if outcome is not None:
            self._finish(batch, begun, outcome)

    def _start(self, batch: list[Job], begun_s: float) -> np.ndarray | None:
        """The outputs of a batch; None where another thread makes them."""
        x = batch[0].x if len(batch) == 1 else np.concatenate([job.x for job in batch])
        self._busy_until_s = begun_s + self._curve.total_ms(len(x)) / 1e3
        if self._executor is None:
            return _in_pieces(self._execute, self._curve, x)
        loop = asyncio.get_running_loop()
        done = self._executor.submit(_in_pieces, self._execute, self._curve, x)
        done.add_done_callback(
            lambda ended: loop.call_soon_threadsafe(self._finish, batch, begun_s, ended.exception() or ended.result())
        )
        return None

    def _drop_dead(self) -> None:
        """Take out what was cancelled, and what can only be late."""
        now = monotonic()
        live: deque[Job] = deque()
        for job in self._queue:
            if job.deadline_s < now and not job.future.done():
                job.future.set_exception(late(0, DEADLINE_PASSED))
            if job.future.done():
                self._waiting -= len(job.x)
            else:
                live.append(job)
        self._queue = live

    def _take(self) -> list[Job]:
        """The jobs of the next call, oldest first."""
        self._drop_dead()
        live = self._queue
        if not live:
            return []
        slack_ms = (min(job.deadline_s for job in live) - monotonic()) * 1e3
        wanted = self._curve.take(self._waiting, slack_ms)
        batch = [live.popleft()]
        count = len(batch[0].x)
        while live and count + len(live[0].x) <= wanted:
            batch.append(live.popleft())
            count += len(batch[-1].x)
        self._waiting -= count
        return batch

    def _finish(self, batch: list[Job], begun_s: float, outcome: np.ndarray | BaseException) -> None:
        self._running = False
        took_ns = int((monotonic() - begun_s) * 1e9)
        if isinstance(outcome, StopIteration):  # which no future takes
            outcome = RuntimeError("the model raised StopIteration")
        count = sum(len(job.x) for job in batch)
        _note(batch, begun_s, outcome, count)
        first = 0
        for job in batch:
            last = first + len(job.x)
            if job.future.done():  # its caller has hung up meanwhile
                pass
            elif isinstance(outcome, BaseException):
                job.future.set_exception(outcome)
            else:
                queue_ns = int((begun_s - job.arrived_s) * 1e9)
                job.future.set_result(Answer(outcome[first:last], queue_ns, took_ns, count))
            first = last
        if self._queue and self._scheduled is None:
            self._schedule()


def _note(batch: list[Job], begun_s: float, outcome: np.ndarray | BaseException, count: int) -> None:
    """For the spans of those that are traced; `monotonic` and `perf_counter` are one clock on Linux."""
    traced = [(job, job.timeline) for job in batch if job.timeline is not None and not job.future.done()]
    error = error_type(outcome) if isinstance(outcome, BaseException) else ""
    links = tuple(timeline.context for _, timeline in traced) if len(batch) > 1 else ()
    for job, timeline in traced:
        timeline.ran(int(job.arrived_s * 1e9), int(begun_s * 1e9), error, count, links)


def _in_pieces(execute: Execute, curve: Curve, x: np.ndarray) -> np.ndarray:
    """All samples, in calls of the sizes that pay."""
    if len(x) == 1 or len(x) in curve.sizes:
        return execute(x)
    pieces, first = [], 0
    for size in reversed(curve.sizes):
        while len(x) - first >= size:
            pieces.append(execute(x[first : first + size]))
            first += size
    return np.concatenate(pieces)
