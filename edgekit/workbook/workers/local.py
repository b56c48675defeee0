"""Run jobs on this machine, each in a process of its own and several at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import partial
from typing import Any

from edgekit.core.errors import EdgekitError, TrustError
from edgekit.workbook.workers.job_process import run_in_process
from edgekit.workbook.workers.jobs import MAX_TRIES, Check, Job, JobLost, OnLine, WorkerDied


class LocalPool:
    """A pool of `count` processes. `environment` holds additional environment variables for them.

    `say` is called with a job's name and each line that the job prints.
    """

    def __init__(self, count: int, environment: Mapping[str, str], say: OnLine) -> None:
        self._count, self._environment, self._say = count, environment, say
        self._print_lock = threading.Lock()

    @property
    def count(self) -> int:
        """Number of jobs that run at a time."""
        return self._count

    def run(
        self,
        jobs: Sequence[Job],
        on_done: Callable[[int, Any], None] | None = None,
        check: Check | None = None,
        *,
        keep_going: bool = False,
    ) -> list[Any]:
        """See `Pool.run`."""
        stopped = threading.Event()
        results: dict[int, Any] = {}
        failures: dict[int, EdgekitError] = {}
        with ThreadPoolExecutor(self._count) as threads:
            running = {
                threads.submit(self._run_job, number, job, stopped, check): number for number, job in enumerate(jobs)
            }
            try:
                while running:
                    for future in wait(running, return_when=FIRST_COMPLETED).done:
                        number = running.pop(future)
                        _store_outcome(number, future, results, results if keep_going else failures)
                        if on_done is not None and number in results:
                            on_done(number, results[number])
                    if failures:
                        for future in [each for each in running if each.cancel()]:
                            del running[future]
            except BaseException:
                stopped.set()
                threads.shutdown(wait=False, cancel_futures=True)
                raise
        if failures:
            raise failures[min(failures)]
        return [results[number] for number in range(len(jobs))]

    def _run_job(self, number: int, job: Job, stopped: threading.Event, check: Check | None) -> Any:
        """Return the result of one job. It is started again if its process dies or its result is wrong."""
        error_class: type[EdgekitError] = JobLost
        for attempt in range(1, MAX_TRIES + 1):
            try:
                answer = run_in_process(
                    job.to_json(), self._environment, partial(self._print_line, job.name), lambda: not stopped.is_set()
                )
            except WorkerDied as death:
                error_class, reason = JobLost, str(death)
            else:
                result = answer.result() if answer.is_intact else None
                fault = "" if answer.is_intact else "it does not match its digest"
                fault = fault or (check(number, result) if check else "")
                if not fault:
                    return result
                error_class, reason = TrustError, f"its process gave a wrong answer: {fault}"
            if stopped.is_set():
                break
            if attempt < MAX_TRIES:
                self._print_line(job.name, f"{reason}; it is started again (try {attempt + 1} of {MAX_TRIES})")
        raise error_class(f"{job.name}: {reason}; tries: {attempt}")

    def _print_line(self, name: str, line: str) -> None:
        with self._print_lock:
            self._say(name, line)


def _store_outcome(number: int, future: Future[Any], results: dict[int, Any], failures: dict[int, Any]) -> None:
    try:
        results[number] = future.result()
    except EdgekitError as error:
        failures[number] = error
