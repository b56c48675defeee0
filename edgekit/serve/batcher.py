"""The queue of one model, and the measured batch latencies that decide how the queue forms batches.

Unless a delay is configured, a request never waits while the model is idle. When the model is free, it takes the
largest batch that is faster per sample than smaller ones and still meets the earliest deadline. Requests that cannot
meet their deadline are refused when they arrive, and requests that are cancelled or expire in the queue never run. A
call that has started is always finished, even if its client has disconnected.
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

from edgekit.serve.errors import DEADLINE_PASSED, busy_error, late_error
from edgekit.serve.timeline import CURRENT, error_type

SIZES = (1, 2, 4, 8, 16)
"""Batch sizes that are measured. Other numbers of samples are split into batches of these sizes."""
MIN_GAIN = 0.10
"""A batch size is used only if its time per sample is at least this share below that of the next smaller used size."""
QUEUE_COST_MS = 0.05
"""CPU time that queueing costs a request (measured). A batch that saves less per sample would be a loss."""
INLINE_MS = 1.0
"""Calls shorter than this run on the event loop, because handing them to a thread and back would take 0.13 ms."""
ROUNDS = 25
MAX_MEASUREMENT_S = 2.0


@dataclass(frozen=True)
class BatchCurve:
    """The latency of one call by batch size.

    `ms` maps the number of samples in a call to its median latency in ms. It always has an entry for 1.
    """

    ms: Mapping[int, float]

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Batch sizes worth using, ascending: each saves at least `MIN_GAIN` per sample over the one before."""
        sizes = [1]
        for size in sorted(self.ms):
            if size > 1 and self.ms[size] / size <= (1 - MIN_GAIN) * self.ms[sizes[-1]] / sizes[-1]:
                sizes.append(size)
        return tuple(sizes)

    @cached_property
    def is_batching_worthwhile(self) -> bool:
        """Whether joining requests into batches saves more time per sample than queueing costs."""
        return any(self.ms[1] - self.ms[size] / size > QUEUE_COST_MS for size in self.sizes)

    @property
    def is_inline(self) -> bool:
        """Whether a single call is so short that it runs on the event loop instead of in a thread."""
        return self.ms[1] < INLINE_MS

    @property
    def speedup(self) -> float:
        """Throughput of the best batch size divided by that of single calls."""
        return max(self.ms[1] * size / self.ms[size] for size in self.sizes)

    def batch_size(self, waiting: int, slack_ms: float | None = None) -> int:
        """Return the size of the next batch: the largest one that the waiting samples fill and the deadline allows.

        `slack_ms` is the time until the earliest deadline, None if there is none.
        """
        if not self.is_batching_worthwhile:
            return 1
        sizes = [size for size in self.sizes if size <= waiting and (slack_ms is None or self.ms[size] <= slack_ms)]
        return sizes[-1] if sizes else 1

    def total_ms(self, count: int) -> float:
        """Return the time in ms that `count` samples take, split into the batch sizes worth using."""
        if count <= 1:
            return self.ms[1] * count
        total = 0.0
        for size in reversed(self.sizes):
            calls, count = divmod(count, size)
            total += calls * self.ms[size]
        return total

    def summary(self) -> str:
        """Describe the curve in one sentence, for the log and the page."""
        single_call = f"one sample takes {self.ms[1]:.3g} ms"
        if not self.is_batching_worthwhile:
            return f"{single_call}; batching is off, because it would not be faster here"
        return f"{single_call}; batches of {self.sizes[-1]} answer {self.speedup:.2f} times as many samples per second"


def measure_curve(make_call: Callable[[int], Callable[[], object] | None]) -> BatchCurve:
    """Measure a model's latency for each batch size, as the median of at most `ROUNDS` rounds.

    `make_call(n)` returns a function that runs n samples, or None if the model cannot run n samples at once. The sizes
    take turns, so that noise affects all of them alike.
    """
    calls = {size: call for size in SIZES if (call := make_call(size)) is not None}
    for run in calls.values():
        run()
    durations_ns: dict[int, list[int]] = {size: [] for size in calls}
    measurement_started_ns = perf_counter_ns()
    for _ in range(ROUNDS):
        for size, run in calls.items():
            call_started_ns = perf_counter_ns()
            run()
            durations_ns[size].append(perf_counter_ns() - call_started_ns)
        if perf_counter_ns() - measurement_started_ns > MAX_MEASUREMENT_S * 1e9:
            break
    return BatchCurve(
        {size: sorted(samples_ns)[len(samples_ns) // 2] / 1e6 for size, samples_ns in durations_ns.items()}
    )


Execute = Callable[[np.ndarray], np.ndarray]
"""Computes outputs (n, …) from input tensors (n, …), where n is one of the curve's sizes."""


class Answer(NamedTuple):
    """The outputs (n, …) of one request.

    `queue_ns` is the time in the queue, `execute_ns` the time of the calls that the request was part of, and `batch`
    the number of samples in these calls: 0 if the answer came from the cache.
    """

    outputs: np.ndarray
    queue_ns: int
    execute_ns: int
    batch: int

    @staticmethod
    def concatenate(answers: list[Answer]) -> Answer:
        """Join the answers for the windows of one recording into one answer."""
        if len(answers) == 1:
            return answers[0]
        outputs = np.concatenate([each.outputs for each in answers])
        queue_ns, execute_ns = sum(each.queue_ns for each in answers), sum(each.execute_ns for each in answers)
        return Answer(outputs, queue_ns, execute_ns, len(outputs))


class Job:
    """The input tensors `x` of one request.

    `deadline_s` is on the clock of `time.monotonic`, and infinity if the request has no deadline.
    """

    __slots__ = ("arrived_s", "deadline_s", "future", "timeline", "x")

    def __init__(self, x: np.ndarray, deadline_s: float, future: asyncio.Future[Answer]) -> None:
        self.x = x
        self.deadline_s = deadline_s
        self.arrived_s = monotonic()
        self.future = future
        self.timeline = CURRENT.get()


class Batcher:
    """The queue of one model. All methods must be called in the event loop's thread.

    Parameters
    ----------
    execute
        Runs the model.
    curve
        The model's measured latency by batch size.
    limit
        The largest number of samples that may wait.
    executor
        Where `execute` runs; on the event loop if None.
    delay_s
        How long a request may wait for others to share its batch. Ignored if batching is not worthwhile.
    """

    def __init__(
        self,
        execute: Execute,
        curve: BatchCurve,
        limit: int,
        executor: Executor | None = None,
        delay_s: float = 0.0,
    ) -> None:
        self._execute, self._curve, self._limit, self._executor = execute, curve, limit, executor
        self._delay_s = delay_s if curve.is_batching_worthwhile else 0.0
        self._queue: deque[Job] = deque()
        self._waiting = 0
        self._busy_until_s = 0.0
        self._is_running = False
        self._scheduled: asyncio.Handle | None = None
        self._is_delayed = False

    @property
    def pending(self) -> int:
        """Number of samples that wait, without those that are being computed."""
        return self._waiting

    @property
    def is_idle(self) -> bool:
        """Whether no sample waits and none is being computed."""
        return not self._is_running and not self._queue

    def wait_s(self) -> float:
        """Estimate, from the curve, how many seconds a request that arrived now would wait."""
        running_s = max(0.0, self._busy_until_s - monotonic()) if self._is_running else 0.0
        return running_s + self._curve.total_ms(self._waiting) / 1e3

    def submit(self, x: np.ndarray, deadline_s: float) -> asyncio.Future[Answer] | Answer:
        """Queue input tensors (n, …), and return a future of the answer.

        If the model is idle and calls are short, the model runs at once and the answer itself is returned. Raises
        RequestError (503) if the queue is full or the answer would come after the deadline.
        """
        count = len(x)
        if self._waiting + count > self._limit:
            self._drop_done()
        if self._waiting + count > self._limit and self._waiting:
            raise busy_error(
                f"the queue is full: {self._waiting} samples wait, at most {self._limit} may", self.wait_s()
            )
        if monotonic() + self.wait_s() + self._curve.total_ms(count) / 1e3 > deadline_s:
            raise late_error(self.wait_s())
        if self._executor is None and not self._curve.is_batching_worthwhile and self.is_idle:
            return self._run_inline(x)
        job = Job(x, deadline_s, asyncio.get_running_loop().create_future())
        self._queue.append(job)
        self._waiting += count
        if not self._is_running and (self._scheduled is None or self._is_delayed):
            self._schedule()
        return job.future

    def _run_inline(self, x: np.ndarray) -> Answer:
        started_s = monotonic()
        error: BaseException | None = None
        try:
            outputs = _execute_in_batches(self._execute, self._curve, x)
        except Exception as raised:
            error = raised
            raise
        finally:
            timeline = CURRENT.get()
            if timeline is not None:
                timeline.add_run(int(started_s * 1e9), int(started_s * 1e9), error_type(error) if error else "", len(x))
        return Answer(outputs, 0, int((monotonic() - started_s) * 1e9), len(x))

    def _schedule(self) -> None:
        """Run the next batch once the event loop has read all sockets that are ready.

        Requests that arrived together thereby form one batch, without any waiting. If a delay is configured, the batch
        waits that much longer, unless it is full or a deadline is too close.
        """
        loop = asyncio.get_running_loop()
        is_delayed = self._delay_s > 0 and self._waiting < self._curve.sizes[-1] and self._slack_s() > self._delay_s
        if self._scheduled is not None:
            if is_delayed:  # the delay counts from the arrival of the first request
                return
            self._scheduled.cancel()
        self._is_delayed = is_delayed
        self._scheduled = (
            loop.call_later(self._delay_s, self._run_next) if is_delayed else loop.call_soon(self._run_next)
        )

    def _slack_s(self) -> float:
        """Return the seconds from when all waiting samples will probably be answered to the earliest deadline.

        The result is negative if the answers will probably come after this deadline.
        """
        return min(job.deadline_s for job in self._queue) - monotonic() - self._curve.total_ms(self._waiting) / 1e3

    def _run_next(self) -> None:
        self._scheduled, self._is_delayed = None, False
        if self._is_running:
            return
        batch = self._next_batch()
        if not batch:
            return
        started_s = monotonic()
        self._is_running = True
        try:
            outcome: np.ndarray | BaseException | None = self._start(batch, started_s)
        except Exception as error:  # the interpreter or its pool failed: this fails the batch, not the queue
            outcome = error
        if outcome is not None:
            self._finish(batch, started_s, outcome)

    def _start(self, batch: list[Job], started_s: float) -> np.ndarray | None:
        """Run a batch and return its outputs; None if they are computed in another thread."""
        x = batch[0].x if len(batch) == 1 else np.concatenate([job.x for job in batch])
        self._busy_until_s = started_s + self._curve.total_ms(len(x)) / 1e3
        if self._executor is None:
            return _execute_in_batches(self._execute, self._curve, x)
        loop = asyncio.get_running_loop()
        outputs = self._executor.submit(_execute_in_batches, self._execute, self._curve, x)
        outputs.add_done_callback(
            lambda finished: loop.call_soon_threadsafe(
                self._finish, batch, started_s, finished.exception() or finished.result()
            )
        )
        return None

    def _drop_done(self) -> None:
        """Remove jobs that were cancelled, and refuse those whose deadline has passed."""
        now_s = monotonic()
        waiting: deque[Job] = deque()
        for job in self._queue:
            if job.deadline_s < now_s and not job.future.done():
                job.future.set_exception(late_error(0, DEADLINE_PASSED))
            if job.future.done():
                self._waiting -= len(job.x)
            else:
                waiting.append(job)
        self._queue = waiting

    def _next_batch(self) -> list[Job]:
        """Take the jobs of the next call out of the queue, oldest first."""
        self._drop_done()
        queue = self._queue
        if not queue:
            return []
        slack_ms = (min(job.deadline_s for job in queue) - monotonic()) * 1e3
        batch_size = self._curve.batch_size(self._waiting, slack_ms)
        batch = [queue.popleft()]
        count = len(batch[0].x)
        while queue and count + len(queue[0].x) <= batch_size:
            batch.append(queue.popleft())
            count += len(batch[-1].x)
        self._waiting -= count
        return batch

    def _finish(self, batch: list[Job], started_s: float, outcome: np.ndarray | BaseException) -> None:
        self._is_running = False
        execute_ns = int((monotonic() - started_s) * 1e9)
        if isinstance(outcome, StopIteration):  # a future cannot hold a StopIteration
            outcome = RuntimeError("the model raised StopIteration")
        count = sum(len(job.x) for job in batch)
        _note_timelines(batch, started_s, outcome, count)
        start = 0
        for job in batch:
            stop = start + len(job.x)
            if job.future.done():  # its client has disconnected in the meantime
                pass
            elif isinstance(outcome, BaseException):
                job.future.set_exception(outcome)
            else:
                queue_ns = int((started_s - job.arrived_s) * 1e9)
                job.future.set_result(Answer(outcome[start:stop], queue_ns, execute_ns, count))
            start = stop
        if self._queue and self._scheduled is None:
            self._schedule()


def _note_timelines(batch: list[Job], started_s: float, outcome: np.ndarray | BaseException, count: int) -> None:
    """Record a call of the model in the timelines of its traced requests.

    `started_s` is on the clock of `time.monotonic`, and timelines use that of `time.perf_counter`. On Linux, both are
    the same clock.
    """
    traced = [(job, job.timeline) for job in batch if job.timeline is not None and not job.future.done()]
    error = error_type(outcome) if isinstance(outcome, BaseException) else ""
    links = tuple(timeline.context for _, timeline in traced) if len(batch) > 1 else ()
    for job, timeline in traced:
        timeline.add_run(int(job.arrived_s * 1e9), int(started_s * 1e9), error, count, links)


def _execute_in_batches(execute: Execute, curve: BatchCurve, x: np.ndarray) -> np.ndarray:
    """Run all samples in calls of the curve's batch sizes, and return their outputs."""
    if len(x) == 1 or len(x) in curve.sizes:
        return execute(x)
    outputs, start = [], 0
    for size in reversed(curve.sizes):
        while len(x) - start >= size:
            outputs.append(execute(x[start : start + size]))
            start += size
    return np.concatenate(outputs)
