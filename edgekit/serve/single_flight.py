"""Equal requests that come while the first of them runs wait for its answer: one call, whoever hangs up.

A request's own fate stays its own: its deadline, its place in a full queue, its caller's hang-up. Those that waited for
one that met such an end go on without it. Where the model itself failed, they run once more, together.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine
from time import monotonic, perf_counter_ns
from typing import Any, Union

import numpy as np

from edgekit.serve.batcher import Answer
from edgekit.serve.errors import DEADLINE_PASSED, RequestError, late

Ran = Union["asyncio.Future[Answer]", Answer]


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

    def __init__(self, begin: Callable[[Flight], Ran], landed: Callable[[Flight, Answer, int], np.ndarray]) -> None:
        self._begin, self._landed = begin, landed
        self._flights: dict[str, Flight] = {}

    def submit(self, key: str, samples: np.ndarray, deadline_s: float) -> Ran:
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
