"""Works on the workers of a Dask scheduler."""

from __future__ import annotations

import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.core.errors import EdgekitError, ResourceError, TrustError
from edgekit.workbook.workers.carrier import carry_here
from edgekit.workbook.workers.scheduler import Workers, connect
from edgekit.workbook.workers.work import TRIES, Answer, Check, OnLine, Work, WorkLost

if TYPE_CHECKING:
    from distributed import Future

LOOK_S = 1.0
ANSWER_S = 10.0
ALONE_S = 60.0
"""Without a worker that can be used: as long as one that is started again needs."""


@contextmanager
def open_dask(on: str, folder: Path | None, say: OnLine) -> Iterator[DaskPool]:
    """A pool of the workers of the scheduler at `on`, from `with` to its end."""
    with connect(on, folder, say) as workers:
        yield DaskPool(workers, say)


class DaskPool:
    """A pool of the workers that are as this machine is."""

    def __init__(self, workers: Workers, say: OnLine) -> None:
        self._workers, self._say = workers, say
        self._topic = f"edgekit-{uuid.uuid4().hex}"
        workers.client.subscribe_topic(self._topic, lambda event: say(*event[1]))

    @property
    def count(self) -> int:
        """How many workers there are."""
        return len(self._workers.usable)

    def run(
        self,
        works: Sequence[Work],
        on_done: Callable[[int, Any], None] | None = None,
        check: Check | None = None,
        *,
        go_on: bool = False,
    ) -> list[Any]:
        """See `Pool.run`."""
        return _Sending(self._workers, self._say, self._topic, works, on_done, check, go_on).to_the_end()


class _Sending:
    """The works of one call, those that wait and those that are at a worker."""

    def __init__(
        self,
        workers: Workers,
        say: OnLine,
        topic: str,
        works: Sequence[Work],
        on_done: Callable[[int, Any], None] | None,
        check: Check | None,
        go_on: bool,
    ) -> None:
        self._workers, self._say, self._topic, self._works = workers, say, topic, works
        self._on_done, self._check, self._go_on = on_done, check, go_on
        self._waiting = deque(range(len(works)))
        self._at: dict[str, tuple[int, Future[Any]]] = {}
        self._tries = [0] * len(works)
        self._avoided: list[set[str]] = [set() for _ in works]
        self._results: dict[int, Any] = {}
        self._failures: dict[int, EdgekitError] = {}
        self._lost: set[Any] = set()
        self._news = threading.Event()

    def to_the_end(self) -> list[Any]:
        try:
            looked_at, last_seen = -LOOK_S, time.monotonic()
            while self._waiting or self._at:
                if time.monotonic() - looked_at >= LOOK_S:
                    self._look()
                    looked_at = time.monotonic()
                self._send()
                self._news.wait(LOOK_S / 4)
                self._news.clear()
                self._receive()
                if self._at or any(map(self._able, self._waiting)):
                    last_seen = time.monotonic()
                elif self._waiting and time.monotonic() - last_seen > ALONE_S:
                    raise ResourceError(f"--on {self._workers.on}: {self._workers.none_left()}")
        finally:
            for _, future in self._at.values():
                future.cancel()
        if self._failures:
            raise self._failures[min(self._failures)]
        return [self._results[number] for number in range(len(self._works))]

    def _look(self) -> None:
        """Who is there; what was at a worker that has gone begins again."""
        there, known = self._workers.look(), self._workers.under_way()
        for address, (number, future) in list(self._at.items()):
            if future.status != "pending":  # its answer is here, be the worker gone or not
                continue
            gone, lost = address not in there, future.key not in known
            if gone or (lost and future.key in self._lost):  # twice, for its answer may be on its way
                del self._at[address]
                future.cancel()
                self._retry(number, address, "has gone" if gone else "gave no answer that can be read")
            elif lost:
                self._lost.add(future.key)

    def _send(self) -> None:
        for address in [each for each in self._workers.usable if each not in self._at]:
            number = next((each for each in self._waiting if not self._avoids(each, address)), None)
            if number is None:
                continue
            self._waiting.remove(number)
            self._tries[number] += 1
            work = self._works[number]
            future = self._workers.client.submit(
                carry_here,
                work.to_json(),
                work.name,
                self._topic,
                workers=[address],
                key=f"edgekit-{number}-{uuid.uuid4().hex}",
                pure=False,
            )
            future.add_done_callback(lambda _: self._news.set())
            self._at[address] = number, future

    def _avoids(self, number: int, address: str) -> bool:
        """Whether that worker must not have that work, or it failed there and there is another."""
        able = self._able(number)
        return address not in able or (address in self._avoided[number] and not set(able) <= self._avoided[number])

    def _able(self, number: int) -> list[str]:
        """The workers that may do that work."""
        measures = self._works[number].resources == "measure"
        return self._workers.for_measuring() if measures else self._workers.usable

    def _receive(self) -> None:
        for address, (number, future) in list(self._at.items()):
            if future.status == "pending":
                continue
            del self._at[address]
            try:
                answer = future.result(timeout=ANSWER_S)
            except Exception as error:  # Dask's own, which has many
                answer = {"died": f"its process did not answer ({error or type(error).__name__})"}
            if "died" in answer:
                self._retry(number, address, f"lost it: {answer['died']}", WorkLost)
            else:
                self._take(number, address, Answer(**answer))

    def _take(self, number: int, address: str, answer: Answer) -> None:
        work = self._works[number]
        if not answer.whole:
            self._lied(number, address, f"its answer to {work.name} does not have the digest that its process took")
            return
        try:
            result = answer.result()
        except EdgekitError as error:
            self._failed(number, error)
            return
        if wrong := self._check(number, result) if self._check else "":
            self._lied(number, address, f"its answer to {work.name} is wrong: {wrong}")
            return
        self._done(number, result)

    def _done(self, number: int, result: Any) -> None:
        self._results[number] = result
        if self._on_done is not None:
            self._on_done(number, result)

    def _failed(self, number: int, error: EdgekitError) -> None:
        if self._go_on:
            self._done(number, error)
            return
        self._failures[number] = error
        self._waiting.clear()

    def _lied(self, number: int, address: str, why: str) -> None:
        """Its answers count no more: what it did is made again elsewhere."""
        self._workers.refuse(address, why)
        if not self._workers.look():
            raise TrustError(f"worker {address}: {why}; no other worker is left to compute it again")
        self._retry(number, address, why, TrustError)

    def _retry(self, number: int, address: str, why: str, kind: type[EdgekitError] = ResourceError) -> None:
        """Begin a work again; after so many tries it has failed, by an error of that kind."""
        self._avoided[number].add(address)
        work = self._works[number]
        if self._failures:
            return
        if self._tries[number] >= TRIES:
            self._failed(number, kind(f"{work.name}: worker {address} {why}; tries: {TRIES}"))
            return
        self._waiting.appendleft(number)
        if kind is not TrustError:  # that one was reported as the worker was refused
            self._say(work.name, f"worker {address} {why}; it begins again ({self._tries[number] + 1} of {TRIES})")
