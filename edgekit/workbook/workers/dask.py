"""Run jobs on the workers of a Dask scheduler."""

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
from edgekit.workbook.workers.dask_job import run_job_on_worker
from edgekit.workbook.workers.jobs import MAX_TRIES, Answer, Check, Job, JobLost, OnLine
from edgekit.workbook.workers.scheduler import SchedulerWorkers, connect

if TYPE_CHECKING:
    from distributed import Future

POLL_S = 1.0
ANSWER_LIMIT_S = 10.0
NO_WORKER_LIMIT_S = 60.0
"""Seconds to wait for a usable worker: enough for a restarted worker to come back."""


@contextmanager
def open_dask(address: str, folder: Path | None, say: OnLine) -> Iterator[DaskPool]:
    """Open a pool of the workers of the scheduler at `address`."""
    with connect(address, folder, say) as workers:
        yield DaskPool(workers, say)


class DaskPool:
    """A pool of the workers whose software and instruction sets are those of this machine; see `SchedulerWorkers`."""

    def __init__(self, workers: SchedulerWorkers, say: OnLine) -> None:
        self._workers, self._say = workers, say
        self._topic = f"edgekit-{uuid.uuid4().hex}"
        workers.client.subscribe_topic(self._topic, lambda event: say(*event[1]))

    @property
    def count(self) -> int:
        """Number of workers."""
        return len(self._workers.usable)

    def run(
        self,
        jobs: Sequence[Job],
        on_done: Callable[[int, Any], None] | None = None,
        check: Check | None = None,
        *,
        keep_going: bool = False,
    ) -> list[Any]:
        """See `Pool.run`."""
        return _JobRun(self._workers, self._say, self._topic, jobs, on_done, check, keep_going).run()


class _JobRun:
    """The jobs of one call of `DaskPool.run`: those that are waiting and those that are running on a worker."""

    def __init__(
        self,
        workers: SchedulerWorkers,
        say: OnLine,
        topic: str,
        jobs: Sequence[Job],
        on_done: Callable[[int, Any], None] | None,
        check: Check | None,
        keep_going: bool,
    ) -> None:
        self._workers, self._say, self._topic, self._jobs = workers, say, topic, jobs
        self._on_done, self._check, self._keep_going = on_done, check, keep_going
        self._waiting = deque(range(len(jobs)))
        self._active: dict[str, tuple[int, Future[Any]]] = {}
        self._attempts = [0] * len(jobs)
        self._avoided: list[set[str]] = [set() for _ in jobs]
        self._results: dict[int, Any] = {}
        self._failures: dict[int, EdgekitError] = {}
        self._lost: set[Any] = set()
        self._answer_event = threading.Event()

    def run(self) -> list[Any]:
        try:
            checked_at, last_seen = -POLL_S, time.monotonic()
            while self._waiting or self._active:
                if time.monotonic() - checked_at >= POLL_S:
                    self._check_workers()
                    checked_at = time.monotonic()
                self._send()
                self._answer_event.wait(POLL_S / 4)
                self._answer_event.clear()
                self._receive()
                if self._active or any(map(self._eligible_workers, self._waiting)):
                    last_seen = time.monotonic()
                elif self._waiting and time.monotonic() - last_seen > NO_WORKER_LIMIT_S:
                    raise ResourceError(f"--on {self._workers.on}: {self._workers.why_none_usable()}")
        finally:
            for _, future in self._active.values():
                future.cancel()
        if self._failures:
            raise self._failures[min(self._failures)]
        return [self._results[number] for number in range(len(self._jobs))]

    def _check_workers(self) -> None:
        """Update the list of workers. Jobs of a worker that has disconnected are started again."""
        connected, active_keys = self._workers.refresh(), self._workers.active_keys()
        for address, (number, future) in list(self._active.items()):
            if future.status != "pending":  # its answer has arrived, even if the worker has disconnected
                continue
            is_disconnected, is_lost = address not in connected, future.key not in active_keys
            # The answer of a job that the scheduler no longer lists may still be in transit, so the job counts as lost
            # only if the scheduler does not list it at a second check either.
            if is_disconnected or (is_lost and future.key in self._lost):
                del self._active[address]
                future.cancel()
                self._retry(number, address, "it has disconnected" if is_disconnected else "it gave no readable answer")
            elif is_lost:
                self._lost.add(future.key)

    def _send(self) -> None:
        for address in [candidate for candidate in self._workers.usable if candidate not in self._active]:
            number = next((candidate for candidate in self._waiting if not self._avoids(candidate, address)), None)
            if number is None:
                continue
            self._waiting.remove(number)
            self._attempts[number] += 1
            job = self._jobs[number]
            future = self._workers.client.submit(
                run_job_on_worker,
                job.to_json(),
                job.name,
                self._topic,
                workers=[address],
                key=f"edgekit-{number}-{uuid.uuid4().hex}",
                pure=False,
            )
            future.add_done_callback(lambda _: self._answer_event.set())
            self._active[address] = number, future

    def _avoids(self, number: int, address: str) -> bool:
        """Whether the job must go to another worker than the one at `address`.

        That is so if this worker is not eligible for the job. It is also so if this worker was given the job before and
        returned no valid answer, as long as there is an eligible worker that has not been tried in vain.
        """
        eligible = self._eligible_workers(number)
        return address not in eligible or (
            address in self._avoided[number] and not set(eligible) <= self._avoided[number]
        )

    def _eligible_workers(self, number: int) -> list[str]:
        """Return the workers that may run the job."""
        is_measuring = self._jobs[number].resources == "measure"
        return self._workers.usable_for_measuring() if is_measuring else self._workers.usable

    def _receive(self) -> None:
        for address, (number, future) in list(self._active.items()):
            if future.status == "pending":
                continue
            del self._active[address]
            try:
                answer = future.result(timeout=ANSWER_LIMIT_S)
            except Exception as error:  # Dask raises many exception classes of its own
                answer = {"died": f"no answer came back through Dask ({error or type(error).__name__})"}
            if "died" in answer:
                self._retry(number, address, f"the job was lost: {answer['died']}", JobLost)
            else:
                self._accept(number, address, Answer(**answer))

    def _accept(self, number: int, address: str, answer: Answer) -> None:
        if not answer.is_intact:
            self._distrust(number, address, "its answer does not match the digest that the job's process computed")
            return
        try:
            result = answer.result()
        except EdgekitError as error:
            self._fail(number, error)
            return
        if fault := self._check(number, result) if self._check else "":
            self._distrust(number, address, f"its answer is wrong: {fault}")
            return
        self._finish(number, result)

    def _finish(self, number: int, result: Any) -> None:
        self._results[number] = result
        if self._on_done is not None:
            self._on_done(number, result)

    def _fail(self, number: int, error: EdgekitError) -> None:
        if self._keep_going:
            self._finish(number, error)
            return
        self._failures[number] = error
        self._waiting.clear()

    def _distrust(self, number: int, address: str, reason: str) -> None:
        """Stop using a worker that gave a wrong answer, and run the job again elsewhere."""
        self._workers.refuse(address, f"{self._jobs[number].name}: {reason}")
        if not self._workers.refresh():
            raise TrustError(
                f"{self._jobs[number].name}: worker {address}: {reason}; no other worker is left to run the job again"
            )
        self._retry(number, address, reason, TrustError)

    def _retry(self, number: int, address: str, reason: str, error_class: type[EdgekitError] = ResourceError) -> None:
        """Start a job again. After the last attempt, it fails with an error of the given class."""
        self._avoided[number].add(address)
        job = self._jobs[number]
        if self._failures:
            return
        if self._attempts[number] >= MAX_TRIES:
            self._fail(number, error_class(f"{job.name}: worker {address}: {reason}; tries: {MAX_TRIES}"))
            return
        self._waiting.appendleft(number)
        # No message for a TrustError: it was already reported when the worker was refused.
        if error_class is not TrustError:
            self._say(
                job.name,
                f"worker {address}: {reason}; the job is started again "
                f"(try {self._attempts[number] + 1} of {MAX_TRIES})",
            )
