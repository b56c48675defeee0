"""Works on this machine: each in a process of its own, some at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import partial
from typing import Any

from edgekit.core.errors import EdgekitError, TrustError
from edgekit.workbook.workers.carry import carry
from edgekit.workbook.workers.work import TRIES, Check, OnLine, Work, WorkerDied, WorkLost


class LocalPool:
    """A pool of `count` processes; `environment` is added to theirs. `say` gets a work's name and a line of it."""

    def __init__(self, count: int, environment: Mapping[str, str], say: OnLine) -> None:
        self._count, self._environment, self._say = count, environment, say
        self._saying = threading.Lock()

    @property
    def count(self) -> int:
        """How many works it does at a time."""
        return self._count

    def run(
        self,
        works: Sequence[Work],
        on_done: Callable[[int, Any], None] | None = None,
        check: Check | None = None,
        *,
        go_on: bool = False,
    ) -> list[Any]:
        """See `Pool.run`."""
        stopped = threading.Event()
        results: dict[int, Any] = {}
        failures: dict[int, EdgekitError] = {}
        with ThreadPoolExecutor(self._count) as threads:
            under_way = {
                threads.submit(self._do, number, work, stopped, check): number for number, work in enumerate(works)
            }
            try:
                while under_way:
                    for future in wait(under_way, return_when=FIRST_COMPLETED).done:
                        number = under_way.pop(future)
                        _take(number, future, results, results if go_on else failures)
                        if on_done is not None and number in results:
                            on_done(number, results[number])
                    if failures:
                        for future in [each for each in under_way if each.cancel()]:
                            del under_way[future]
            except BaseException:
                stopped.set()
                threads.shutdown(wait=False, cancel_futures=True)
                raise
        if failures:
            raise failures[min(failures)]
        return [results[number] for number in range(len(works))]

    def _do(self, number: int, work: Work, stopped: threading.Event, check: Check | None) -> Any:
        """The result of one work, begun again where its process dies or its result is wrong."""
        kind: type[EdgekitError] = WorkLost
        for tries in range(1, TRIES + 1):
            try:
                answer = carry(
                    work.to_json(), self._environment, partial(self._line, work.name), lambda: not stopped.is_set()
                )
            except WorkerDied as death:
                kind, why = WorkLost, str(death)
            else:
                result = answer.result() if answer.whole else None
                wrong = "" if answer.whole else "it does not have the digest that was taken of it"
                wrong = wrong or (check(number, result) if check else "")
                if not wrong:
                    return result
                kind, why = TrustError, f"its process gave a wrong answer: {wrong}"
            if stopped.is_set():
                break
            if tries < TRIES:
                self._line(work.name, f"{why}; it begins again ({tries + 1} of {TRIES})")
        raise kind(f"{work.name}: {why}; tries: {tries}")

    def _line(self, name: str, line: str) -> None:
        with self._saying:
            self._say(name, line)


def _take(number: int, future: Future[Any], results: dict[int, Any], failures: dict[int, Any]) -> None:
    try:
        results[number] = future.result()
    except EdgekitError as error:
        failures[number] = error
