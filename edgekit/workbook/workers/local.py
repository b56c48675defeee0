"""Works on this machine: each in a process of its own, some at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import partial
from typing import Any

from edgekit.core.errors import EdgekitError, ResourceError
from edgekit.workbook.workers.carry import carry
from edgekit.workbook.workers.work import TRIES, OnLine, Work, WorkerDied


class LocalPool:
    """A pool of `count` processes; `environment` is added to theirs. `say` gets a work's name and a line of it."""

    def __init__(self, count: int, environment: Mapping[str, str], say: OnLine) -> None:
        self._count, self._environment, self._say = count, environment, say
        self._saying = threading.Lock()

    @property
    def count(self) -> int:
        """How many works it does at a time."""
        return self._count

    def run(self, works: Sequence[Work], on_done: Callable[[int, Any], None] | None = None) -> list[Any]:
        """See `Pool.run`."""
        stopped = threading.Event()
        results: dict[int, Any] = {}
        failures: dict[int, EdgekitError] = {}
        with ThreadPoolExecutor(self._count) as threads:
            under_way = {threads.submit(self._do, work, stopped): number for number, work in enumerate(works)}
            try:
                while under_way:
                    for future in wait(under_way, return_when=FIRST_COMPLETED).done:
                        number = under_way.pop(future)
                        _take(number, future, results, failures)
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

    def _do(self, work: Work, stopped: threading.Event) -> Any:
        """The result of one work, begun again where its process dies."""
        for number in range(1, TRIES + 1):
            try:
                answer = carry(
                    work.to_json(), self._environment, partial(self._line, work.name), lambda: not stopped.is_set()
                )
            except WorkerDied as death:
                died = str(death)
                if stopped.is_set():
                    break
                if number < TRIES:
                    self._line(work.name, f"its process {died}; it begins again ({number + 1} of {TRIES})")
                continue
            return answer.result()
        raise ResourceError(f"{work.name}: its process {died}; so did {TRIES - 1} before it")

    def _line(self, name: str, line: str) -> None:
        with self._saying:
            self._say(name, line)


def _take(number: int, future: Future[Any], results: dict[int, Any], failures: dict[int, EdgekitError]) -> None:
    try:
        results[number] = future.result()
    except EdgekitError as error:
        failures[number] = error
