"""Answers that are remembered for a while: equal requests run once. Off by default.

An `AnswerStore` is a worker's memory, bounded in bytes. An `AnswerCache` stands before one model's queue and takes its
place there: `submit` gives what `Batcher.submit` gives. Behind the store there may be a Redis, see `redis_cache.py`.

Equal requests that come while the first of them runs wait for its answer. A request's own fate stays its own: its
deadline, its place in a full queue, its caller's hang-up. Cancelling one caller does not affect the others; if the
leader is cancelled, a follower takes over. Where the model itself failed, they run once more, together.
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
from edgekit.serve.errors import DEADLINE_PASSED, RequestError, late
from edgekit.serve.redis_cache import RedisCache
from edgekit.serve.repository import ValidatedBundle

ENTRY_BYTES = 1024
"""What an entry takes beside its values: key, array, places in the cache's tables. Measured 640 bytes, rounded up."""
PREFIX = "edgekit:1:"


class StoredAnswer(NamedTuple):
    """An answer in the store; `until_s` is of `time.monotonic`."""

    outputs: np.ndarray
    until_s: float


class AnswerStore:
    """One process's answers: at most `most_bytes`, none older than `ttl_s`; the one not used for longest goes first."""

    def __init__(self, most_bytes: int, ttl_s: float) -> None:
        self.most_bytes, self.ttl_s = most_bytes, ttl_s
        self._kept: TLRUCache[str, StoredAnswer] = TLRUCache(
            most_bytes, ttu=lambda _key, kept, _now: kept.until_s, getsizeof=_bytes
        )

    @property
    def size_bytes(self) -> int:
        """What is held, by the same count as the bound."""
        return int(self._kept.currsize)

    @property
    def entries(self) -> int:
        """Answers that are held."""
        return len(self._kept)

    def get(self, key: str) -> np.ndarray | None:
        """Outputs that may not be written to; None where there are none, or no longer."""
        kept = self._kept.get(key)
        return None if kept is None else kept.outputs

    def put(self, key: str, outputs: np.ndarray, left_s: float | None = None) -> np.ndarray:
        """Keep a copy for `left_s`, at most `ttl_s`; the copy, which is kept only where it fits."""
        copy = np.array(outputs, order="C")
        copy.setflags(write=False)
        ttl_s = self.ttl_s if left_s is None else min(left_s, self.ttl_s)
        kept = StoredAnswer(copy, monotonic() + ttl_s)
        if _bytes(kept) <= self.most_bytes:
            self._kept[key] = kept
        return copy


@dataclass(frozen=True)
class WorkerCache:
    """The cache of one worker: its store, and the Redis behind it, None where there is none."""

    store: AnswerStore
    shared: RedisCache | None

    def state(self, redis_state: str) -> str:
        """One sentence for the log and the page."""
        redis = f"; {redis_state}" if redis_state else ""
        return f"answers are cached for {self.store.ttl_s:g} s, {self.store.most_bytes >> 20} MB a worker{redis}"


def base_key(bundle: ValidatedBundle) -> str:
    """What all keys of a model begin with. Its threads do not matter, the code that prepares its samples does."""
    return f"{PREFIX}{bundle.identity}:{bundle.interpreter}-{bundle.interpreter_version}:{__version__}"


def key_of(base: str, samples: np.ndarray) -> str:
    """The key of a request: type, shape and every byte of its samples."""
    shape = "x".join(map(str, samples.shape))
    digest = hashlib.sha256(np.ascontiguousarray(samples).data).hexdigest()
    return f"{base}:{samples.dtype.str}:{shape}:{digest}"


class AnswerCache:
    """One model's answers. All methods belong to the event loop's thread; `row` are the model's counters."""

    def __init__(
        self,
        remembered: WorkerCache,
        bundle: ValidatedBundle,
        prepare: Callable[[np.ndarray], np.ndarray],
        batcher: Batcher,
        output_shape: tuple[int, ...],
        row: memoryview,
    ) -> None:
        self._remembered, self._store = remembered, remembered.store
        self._base, self._execute_ms = base_key(bundle), bundle.ms[1]
        self._prepare, self._batcher, self._output_shape, self._row = prepare, batcher, output_shape, row
        self._flights = Flights(self._begin, self._landed)

    async def open(self) -> None:
        """Measure Redis, where there is one, with an answer of this model's size."""
        if self._remembered.shared is not None:
            await self._remembered.shared.measure(self._output_bytes)

    @property
    def state(self) -> str:
        """What is cached where, and why not in Redis."""
        shared = self._remembered.shared
        return self._remembered.state(shared.verdict(self._output_bytes, self._execute_ms) if shared else "")

    @property
    def _output_bytes(self) -> int:
        return 4 * int(np.prod(self._output_shape))

    def submit(self, samples: np.ndarray, deadline_s: float) -> AnswerOrFuture:
        """As `Batcher.submit`, of raw samples (n, *raw); an answer that no call was made for has the batch 0."""
        started_ns = perf_counter_ns()
        key = key_of(self._base, samples)
        outputs = self._store.get(key)
        if outputs is not None:
            counters.timed(self._row, "cache_hit", perf_counter_ns() - started_ns)
            return Answer(outputs, 0, 0, 0)
        return self._flights.submit(key, samples, deadline_s)

    def _begin(self, flight: Flight) -> AnswerOrFuture:
        """What runs for a request that nothing is remembered of; RequestError where it is refused at the door."""
        shared = self._remembered.shared
        if shared is None or not shared.pays(self._output_bytes, self._execute_ms):
            return self._execute(flight)
        return flight.task(self._asked(flight, shared))

    def _execute(self, flight: Flight) -> AnswerOrFuture:
        flight.looked_up()
        return self._batcher.submit(self._prepare(flight.samples), flight.deadline_s)

    async def _asked(self, flight: Flight, shared: RedisCache) -> Answer:
        """From Redis, else executed."""
        shape = (len(flight.samples), *self._output_shape)
        needed_s = self._batcher.wait_s() + len(flight.samples) * self._execute_ms / 1e3
        found = await shared.get(flight.key, shape, flight.deadline_s - monotonic() - needed_s)
        if found is not None:
            return Answer(self._store.put(flight.key, found.outputs, found.left_s), 0, 0, 0)
        made = self._execute(flight)
        return made if isinstance(made, Answer) else await made

    def _landed(self, flight: Flight, answer: Answer, waiting: int) -> np.ndarray:
        """Count and keep; the outputs for those who did not run. The first of those who wait is the one who ran."""
        began_ns = perf_counter_ns()
        outputs = answer.outputs
        ran = answer.batch > 0
        if ran and np.isfinite(outputs).all():  # what is not is a fault, and no fault is remembered
            outputs = self._store.put(flight.key, outputs)
            if self._remembered.shared is not None and flight.asked:
                self._remembered.shared.put_soon(flight.key, outputs, self._store.ttl_s)
        ended_ns = perf_counter_ns()
        if ran:
            counters.timed(self._row, "cache_miss", flight.lookup_ns + ended_ns - began_ns)
        hits = waiting - ran
        if hits > 0:
            counters.timed(self._row, "cache_hit", flight.waited_ns(ended_ns, skip=int(ran)), hits)
        return outputs


def _bytes(kept: StoredAnswer) -> int:
    return kept.outputs.nbytes + ENTRY_BYTES


AnswerOrFuture = Union["asyncio.Future[Answer]", Answer]


class Waiter:
    """One request that waits; `future` is its caller's."""

    __slots__ = ("arrived_ns", "deadline_s", "future", "timer")

    def __init__(self, deadline_s: float, future: asyncio.Future[Answer]) -> None:
        self.deadline_s, self.future = deadline_s, future
        self.arrived_ns = perf_counter_ns()
        self.timer: asyncio.TimerHandle | None = None

    def refuse_late(self) -> None:
        """At its deadline."""
        if not self.future.done():
            self.future.set_exception(late(0, DEADLINE_PASSED))


class Flight:
    """What runs for equal requests. `leader` is the one whose deadline it has, and who fails with it."""

    def __init__(self, key: str, samples: np.ndarray, leader: Waiter, is_again: bool) -> None:
        self.key, self.samples, self.leader, self.is_again = key, samples, leader, is_again
        self.waiters = [leader]
        self.job: asyncio.Future[Answer] | None = None
        self.asked = False
        self.lookup_ns = 0

    @property
    def deadline_s(self) -> float:
        """Of its leader, of `time.monotonic`."""
        return self.leader.deadline_s

    def task(self, work: Coroutine[Any, Any, Answer]) -> asyncio.Task[Answer]:
        """Run what has to ask elsewhere first."""
        self.asked = True
        return asyncio.get_running_loop().create_task(work)

    def looked_up(self) -> None:
        """Nothing is remembered; it is executed from here on."""
        self.lookup_ns = perf_counter_ns() - self.leader.arrived_ns

    def live(self) -> list[Waiter]:
        """Those who still wait, in the order in which they came."""
        return [waiter for waiter in self.waiters if not waiter.future.done()]

    def waited_ns(self, now_ns: int, skip: int) -> int:
        """Of those who still wait, the first `skip` left out."""
        return sum(now_ns - waiter.arrived_ns for waiter in self.live()[skip:])


class Flights:
    """Those of one model. `begin` starts a flight's work, `landed` keeps its answer and gives it for the others."""

    def __init__(
        self, begin: Callable[[Flight], AnswerOrFuture], landed: Callable[[Flight, Answer, int], np.ndarray]
    ) -> None:
        self._begin, self._landed = begin, landed
        self._flights: dict[str, Flight] = {}

    def submit(self, key: str, samples: np.ndarray, deadline_s: float) -> AnswerOrFuture:
        """The answer where it could be had at once, else a future of it; whatever `begin` raises."""
        waiter = Waiter(deadline_s, asyncio.get_running_loop().create_future())
        flight = self._flights.get(key)
        if flight is not None:
            self._join(flight, waiter)
            return waiter.future
        flight = Flight(key, samples, waiter, False)
        made = self._begin(flight)
        if isinstance(made, Answer):
            self._landed(flight, made, 1)
            return made
        self._watch(flight, made)
        return waiter.future

    def _join(self, flight: Flight, waiter: Waiter) -> None:
        flight.waiters.append(waiter)
        self._follow(flight, waiter)
        if waiter.deadline_s < math.inf:
            left_s = max(0.0, waiter.deadline_s - monotonic())
            waiter.timer = asyncio.get_running_loop().call_later(left_s, waiter.refuse_late)

    def _watch(self, flight: Flight, job: asyncio.Future[Answer]) -> None:
        flight.job = job
        self._flights[flight.key] = flight
        self._follow(flight, flight.leader)
        job.add_done_callback(lambda _: self._land(flight, job))

    def _follow(self, flight: Flight, waiter: Waiter) -> None:
        waiter.future.add_done_callback(lambda _: self._left(flight, waiter))

    def _left(self, flight: Flight, waiter: Waiter) -> None:
        """Stop what nobody waits for any more."""
        if waiter.timer is not None:
            waiter.timer.cancel()
        if not flight.live() and flight.job is not None and not flight.job.done():
            self._forget(flight)
            flight.job.cancel()

    def _forget(self, flight: Flight) -> None:
        if self._flights.get(flight.key) is flight:
            del self._flights[flight.key]

    def _land(self, flight: Flight, job: asyncio.Future[Answer]) -> None:
        self._forget(flight)
        if job.cancelled():
            return self._rerun(flight.live(), flight, flight.is_again)
        error = job.exception()
        if error is not None:
            return self._failed(flight, error)
        answer, live = job.result(), flight.live()
        try:
            outputs = self._landed(flight, answer, len(live))
        except Exception as failure:  # nobody else would tell those who wait
            return _tell(live, failure)
        for place, waiter in enumerate(live):
            waiter.future.set_result(answer if place == 0 else Answer(outputs, 0, 0, 0))
        return None

    def _failed(self, flight: Flight, error: BaseException) -> None:
        """To whom it happened; the others go on, where it need not happen to them."""
        live = flight.live()
        is_own = isinstance(error, RequestError) and error.status == 503
        is_everybodys = flight.is_again if not isinstance(error, RequestError) else not is_own
        theirs = live if is_everybodys else [waiter for waiter in live if waiter is flight.leader]
        for waiter in theirs:
            waiter.future.set_exception(error)
        self._rerun([waiter for waiter in live if waiter not in theirs], flight, flight.is_again or not is_own)

    def _rerun(self, waiters: list[Waiter], old: Flight, is_again: bool) -> None:
        """Another flight for those who are left; the next leads where one is refused at the door."""
        for place, leader in enumerate(waiters):
            flight = Flight(old.key, old.samples, leader, is_again)
            try:
                made = self._begin(flight)
            except Exception as error:  # as it would have met this one alone
                leader.future.set_exception(error)
                continue
            flight.waiters = waiters[place:]
            if isinstance(made, Answer):
                ready: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
                ready.set_result(made)
                return self._land(flight, ready)
            if leader.timer is not None:
                leader.timer.cancel()
            for waiter in flight.waiters[1:]:
                self._follow(flight, waiter)
            return self._watch(flight, made)
        return None


def _tell(waiters: list[Waiter], error: Exception) -> None:
    for waiter in waiters:
        waiter.future.set_exception(error)
