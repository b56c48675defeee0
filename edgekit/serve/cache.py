"""The answer cache: the model runs once for equal requests. Off by default.

An `AnswerStore` holds the answers of one worker, within a limit on memory. An `AnswerCache` sits in front of one
model's queue, and its `submit` works like `Batcher.submit`. A Redis behind the store is optional, see `redis_cache.py`.

Equal requests that arrive while the first of them runs wait for its answer. A deadline that passes, a full queue or a
client that disconnects affects only its own request, not the others. If the first request (the leader) is cancelled,
the next one takes over. If the model fails, the leader gets the error, and the model runs once more for the others.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from time import monotonic, perf_counter_ns
from typing import Any, NamedTuple, Union

import numpy as np
from cachetools import TLRUCache

from edgekit import __version__
from edgekit.serve import counters
from edgekit.serve.batcher import Answer, Batcher
from edgekit.serve.errors import DEADLINE_PASSED, RequestError, late_error
from edgekit.serve.redis_cache import RedisCache
from edgekit.serve.repository import ValidatedBundle

ENTRY_BYTES = 1024
"""Memory of an entry beside its values: key, array object and cache tables. Measured as 640 bytes and rounded up."""
PREFIX = "edgekit:1:"


class StoredAnswer(NamedTuple):
    """An answer in the store, valid until `until_s` on the clock of `time.monotonic`."""

    outputs: np.ndarray
    until_s: float


class AnswerStore:
    """The answers of one process: at most `max_bytes` in total, none older than `ttl_s`.

    When the store is full, the least recently used answer is dropped first.
    """

    def __init__(self, max_bytes: int, ttl_s: float) -> None:
        self.max_bytes, self.ttl_s = max_bytes, ttl_s
        self._answers: TLRUCache[str, StoredAnswer] = TLRUCache(
            max_bytes, ttu=lambda _key, entry, _now: entry.until_s, getsizeof=_size_bytes
        )

    @property
    def size_bytes(self) -> int:
        """Memory in use, counted in the same way as for the limit `max_bytes`."""
        return int(self._answers.currsize)

    @property
    def entries(self) -> int:
        """Number of stored answers."""
        return len(self._answers)

    def get(self, key: str) -> np.ndarray | None:
        """Return the stored outputs as a read-only array, or None if there are none or they have expired."""
        entry = self._answers.get(key)
        return None if entry is None else entry.outputs

    def put(self, key: str, outputs: np.ndarray, remaining_s: float | None = None) -> np.ndarray:
        """Store a copy of the outputs for `remaining_s`, at most for `ttl_s`, and return the copy.

        An answer that is larger than the whole store is returned without being stored.
        """
        copy = np.array(outputs, order="C")
        copy.setflags(write=False)
        ttl_s = self.ttl_s if remaining_s is None else min(remaining_s, self.ttl_s)
        entry = StoredAnswer(copy, monotonic() + ttl_s)
        if _size_bytes(entry) <= self.max_bytes:
            self._answers[key] = entry
        return copy


@dataclass(frozen=True)
class WorkerCache:
    """The cache of one worker: its store, and the Redis behind it, if there is one."""

    store: AnswerStore
    shared: RedisCache | None

    def state(self, redis_state: str) -> str:
        """Describe the cache in one sentence, for the log and the page."""
        redis = f"; {redis_state}" if redis_state else ""
        return f"answers are cached for {self.store.ttl_s:g} s, {self.store.max_bytes >> 20} MB a worker{redis}"


def key_prefix(bundle: ValidatedBundle) -> str:
    """Return the prefix of all keys of a model.

    It includes the version of edgekit, because the preprocessing code affects the answers. The number of threads does
    not affect them and is left out.
    """
    return f"{PREFIX}{bundle.identity}:{bundle.interpreter}-{bundle.interpreter_version}:{__version__}"


def answer_key(prefix: str, samples: np.ndarray) -> str:
    """Return the key of a request, made from the dtype, the shape and all bytes of its samples."""
    shape = "x".join(map(str, samples.shape))
    digest = hashlib.sha256(np.ascontiguousarray(samples).data).hexdigest()
    return f"{prefix}:{samples.dtype.str}:{shape}:{digest}"


class AnswerCache:
    """The cache of one model. All methods must be called in the event loop's thread.

    Parameters
    ----------
    worker_cache
        The store, and the Redis behind it, that all models of the worker share.
    bundle
        The bundle of the model.
    prepare
        Computes input tensors (n, …) from raw samples (n, *raw).
    batcher
        The model's queue.
    output_shape
        The shape of one sample's outputs.
    row
        The model's counters.
    """

    def __init__(
        self,
        worker_cache: WorkerCache,
        bundle: ValidatedBundle,
        prepare: Callable[[np.ndarray], np.ndarray],
        batcher: Batcher,
        output_shape: tuple[int, ...],
        row: memoryview,
    ) -> None:
        self._worker_cache, self._store = worker_cache, worker_cache.store
        self._base, self._execute_ms = key_prefix(bundle), bundle.ms[1]
        self._prepare, self._batcher, self._output_shape, self._row = prepare, batcher, output_shape, row
        self._flights = Flights(self._start, self._store_answer)

    async def open(self) -> None:
        """Measure how long Redis, if there is one, takes for an answer of this model's size."""
        if self._worker_cache.shared is not None:
            await self._worker_cache.shared.measure(self._output_bytes)

    @property
    def state(self) -> str:
        """One sentence that says where answers are cached and, if Redis is not used, why."""
        shared = self._worker_cache.shared
        return self._worker_cache.state(shared.summary(self._output_bytes, self._execute_ms) if shared else "")

    @property
    def _output_bytes(self) -> int:
        return 4 * int(np.prod(self._output_shape))

    def submit(self, samples: np.ndarray, deadline_s: float) -> AnswerOrFuture:
        """Answer raw samples (n, *raw) from the cache if it has the answer, and otherwise like `Batcher.submit`.

        An answer for which the model was not run has `batch` 0.
        """
        started_ns = perf_counter_ns()
        key = answer_key(self._base, samples)
        outputs = self._store.get(key)
        if outputs is not None:
            counters.add_time(self._row, "cache_hit", perf_counter_ns() - started_ns)
            return Answer(outputs, 0, 0, 0)
        return self._flights.submit(key, samples, deadline_s)

    def _start(self, flight: Flight) -> AnswerOrFuture:
        """Start the work for a request that is not in the store. Raises RequestError if the queue refuses it."""
        shared = self._worker_cache.shared
        if shared is None or not shared.is_worthwhile(self._output_bytes, self._execute_ms):
            return self._execute(flight)
        return flight.task(self._ask_redis_first(flight, shared))

    def _execute(self, flight: Flight) -> AnswerOrFuture:
        flight.note_lookup()
        return self._batcher.submit(self._prepare(flight.samples), flight.deadline_s)

    async def _ask_redis_first(self, flight: Flight, shared: RedisCache) -> Answer:
        """Return the answer from Redis, or run the model if Redis has none."""
        shape = (len(flight.samples), *self._output_shape)
        needed_s = self._batcher.wait_s() + len(flight.samples) * self._execute_ms / 1e3
        cached = await shared.get(flight.key, shape, flight.deadline_s - monotonic() - needed_s)
        if cached is not None:
            return Answer(self._store.put(flight.key, cached.outputs, cached.remaining_s), 0, 0, 0)
        answer = self._execute(flight)
        return answer if isinstance(answer, Answer) else await answer

    def _store_answer(self, flight: Flight, answer: Answer, waiting: int) -> np.ndarray:
        """Store and count an answer, and return the outputs that the other waiting requests receive.

        `waiting` is the number of requests that wait. If the model was run, the first of them counts as a miss of the
        cache, because the model was run for it, and all others count as hits. If the answer came from Redis, all count
        as hits.
        """
        started_ns = perf_counter_ns()
        outputs = answer.outputs
        has_run = answer.batch > 0
        if has_run and np.isfinite(outputs).all():  # outputs that are not finite are an error, which is never cached
            outputs = self._store.put(flight.key, outputs)
            if self._worker_cache.shared is not None and flight.asked_redis:
                self._worker_cache.shared.store_in_background(flight.key, outputs, self._store.ttl_s)
        ended_ns = perf_counter_ns()
        if has_run:
            counters.add_time(self._row, "cache_miss", flight.lookup_ns + ended_ns - started_ns)
        hits = waiting - has_run
        if hits > 0:
            counters.add_time(self._row, "cache_hit", flight.waited_ns(ended_ns, skip=int(has_run)), hits)
        return outputs


def _size_bytes(entry: StoredAnswer) -> int:
    return entry.outputs.nbytes + ENTRY_BYTES


AnswerOrFuture = Union["asyncio.Future[Answer]", Answer]


class Waiter:
    """A request that waits for a `Flight`, the computation that equal requests share. Its caller awaits `future`."""

    __slots__ = ("arrived_ns", "deadline_s", "future", "timer")

    def __init__(self, deadline_s: float, future: asyncio.Future[Answer]) -> None:
        self.deadline_s, self.future = deadline_s, future
        self.arrived_ns = perf_counter_ns()
        self.timer: asyncio.TimerHandle | None = None

    def refuse_late(self) -> None:
        """Refuse the request because its deadline has passed."""
        if not self.future.done():
            self.future.set_exception(late_error(0, DEADLINE_PASSED))


class Flight:
    """The computation that equal requests share.

    It has the deadline of its `leader`, the request that started it. `is_retry` says that an earlier flight for these
    requests failed.
    """

    def __init__(self, key: str, samples: np.ndarray, leader: Waiter, is_retry: bool) -> None:
        self.key, self.samples, self.leader, self.is_retry = key, samples, leader, is_retry
        self.waiters = [leader]
        self.job: asyncio.Future[Answer] | None = None
        self.asked_redis = False
        self.lookup_ns = 0

    @property
    def deadline_s(self) -> float:
        """The leader's deadline, on the clock of `time.monotonic`."""
        return self.leader.deadline_s

    def task(self, work: Coroutine[Any, Any, Answer]) -> asyncio.Task[Answer]:
        """Start a task for `work`, which asks Redis for the answer before it runs the model."""
        self.asked_redis = True
        return asyncio.get_running_loop().create_task(work)

    def note_lookup(self) -> None:
        """Record how long looking up the answer took. Called when the model is about to run."""
        self.lookup_ns = perf_counter_ns() - self.leader.arrived_ns

    def open_waiters(self) -> list[Waiter]:
        """Return the requests that still wait, in order of arrival."""
        return [waiter for waiter in self.waiters if not waiter.future.done()]

    def waited_ns(self, now_ns: int, skip: int) -> int:
        """Return the total waiting time of the requests that still wait, not counting the first `skip` requests."""
        return sum(now_ns - waiter.arrived_ns for waiter in self.open_waiters()[skip:])


class Flights:
    """The flights of one model.

    Parameters
    ----------
    start
        Starts the work of a flight and returns its answer or a future of it.
    store_answer
        Stores and counts an answer, given the number of requests that wait for it. Returns the outputs for all of
        these requests except the first.
    """

    def __init__(
        self, start: Callable[[Flight], AnswerOrFuture], store_answer: Callable[[Flight, Answer, int], np.ndarray]
    ) -> None:
        self._start, self._store_answer = start, store_answer
        self._flights: dict[str, Flight] = {}

    def submit(self, key: str, samples: np.ndarray, deadline_s: float) -> AnswerOrFuture:
        """Return the answer if it is available at once, else a future of it. Raises what `start` raises."""
        waiter = Waiter(deadline_s, asyncio.get_running_loop().create_future())
        flight = self._flights.get(key)
        if flight is not None:
            self._join(flight, waiter)
            return waiter.future
        flight = Flight(key, samples, waiter, False)
        answer = self._start(flight)
        if isinstance(answer, Answer):
            self._store_answer(flight, answer, 1)
            return answer
        self._track(flight, answer)
        return waiter.future

    def _join(self, flight: Flight, waiter: Waiter) -> None:
        flight.waiters.append(waiter)
        self._follow(flight, waiter)
        if waiter.deadline_s < math.inf:
            remaining_s = max(0.0, waiter.deadline_s - monotonic())
            waiter.timer = asyncio.get_running_loop().call_later(remaining_s, waiter.refuse_late)

    def _track(self, flight: Flight, job: asyncio.Future[Answer]) -> None:
        flight.job = job
        self._flights[flight.key] = flight
        self._follow(flight, flight.leader)
        job.add_done_callback(lambda _: self._job_done(flight, job))

    def _follow(self, flight: Flight, waiter: Waiter) -> None:
        waiter.future.add_done_callback(lambda _: self._waiter_done(flight, waiter))

    def _waiter_done(self, flight: Flight, waiter: Waiter) -> None:
        """Cancel the work of a flight once no request waits for it any more."""
        if waiter.timer is not None:
            waiter.timer.cancel()
        if not flight.open_waiters() and flight.job is not None and not flight.job.done():
            self._forget(flight)
            flight.job.cancel()

    def _forget(self, flight: Flight) -> None:
        if self._flights.get(flight.key) is flight:
            del self._flights[flight.key]

    def _job_done(self, flight: Flight, job: asyncio.Future[Answer]) -> None:
        self._forget(flight)
        if job.cancelled():
            return self._retry(flight.open_waiters(), flight, flight.is_retry)
        error = job.exception()
        if error is not None:
            return self._job_failed(flight, error)
        answer, waiters = job.result(), flight.open_waiters()
        try:
            outputs = self._store_answer(flight, answer, len(waiters))
        except Exception as failure:  # in a callback: otherwise the waiting requests would never learn of it
            return _fail_all(waiters, failure)
        for index, waiter in enumerate(waiters):
            waiter.future.set_result(answer if index == 0 else Answer(outputs, 0, 0, 0))
        return None

    def _job_failed(self, flight: Flight, error: BaseException) -> None:
        """Pass an error to the requests that it concerns, and start again for the others.

        A refusal with 503 (a full queue or a deadline) concerns only the leader, any other refusal concerns all. An
        error of the model concerns the leader at first, and all requests if it happens again.
        """
        waiters = flight.open_waiters()
        is_own = isinstance(error, RequestError) and error.status == 503
        is_for_everyone = flight.is_retry if not isinstance(error, RequestError) else not is_own
        failed = waiters if is_for_everyone else [waiter for waiter in waiters if waiter is flight.leader]
        for waiter in failed:
            waiter.future.set_exception(error)
        self._retry([waiter for waiter in waiters if waiter not in failed], flight, flight.is_retry or not is_own)

    def _retry(self, waiters: list[Waiter], old: Flight, is_retry: bool) -> None:
        """Start another flight for the remaining requests. If the queue refuses the leader, the next one leads."""
        for index, leader in enumerate(waiters):
            flight = Flight(old.key, old.samples, leader, is_retry)
            try:
                answer = self._start(flight)
            except Exception as error:  # this request would have met the same error without the others
                leader.future.set_exception(error)
                continue
            flight.waiters = waiters[index:]
            if isinstance(answer, Answer):
                done: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
                done.set_result(answer)
                return self._job_done(flight, done)
            if leader.timer is not None:
                leader.timer.cancel()
            for waiter in flight.waiters[1:]:
                self._follow(flight, waiter)
            return self._track(flight, answer)
        return None


def _fail_all(waiters: list[Waiter], error: Exception) -> None:
    for waiter in waiters:
        waiter.future.set_exception(error)
