"""The workers of a Dask scheduler, each of which is compared with this machine before it is used.

This process, not the scheduler, chooses the worker for each job. So a job whose worker dies or gives a wrong answer can
be sent to another worker, and a worker that reconnects is checked like a new one.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.core.errors import ConfigError, ResourceError
from edgekit.runner.files import make_folder, remove_quietly
from edgekit.workbook.workers import machine_facts
from edgekit.workbook.workers.jobs import OnLine

if TYPE_CHECKING:
    from distributed import Client

ADDRESS = re.compile(r"(dask|tcp|tls)://([^\s/:]+|\[[0-9a-fA-F:]+\]):(\d{1,5})/?")
SCHEDULER_LIMIT_S = 10.0
"""Longest time for a scheduler to answer, in seconds."""
WORKER_LIMIT_S = 20.0
"""Longest time for a worker to report its facts, in seconds."""
FIRST_WORKER_LIMIT_S = 30.0
"""Seconds to wait for the first worker. A worker that is started together with the scheduler needs a few of them."""
MAX_CHECKS_AT_ONCE = 16
LOGGERS = ("distributed", "tornado", "asyncio")


class SchedulerWorkers:
    """The workers of a scheduler; only those that match this machine are used."""

    def __init__(self, client: Client, on: str, say: OnLine, probe: Path | None) -> None:
        self.client, self.on, self._say = client, on, say
        self._probe = str(probe) if probe else None
        self._local_facts = machine_facts.local_facts(self._probe)
        self.usable: list[str] = []
        self._same_processor: set[str] = set()
        self.refused: dict[str, str] = {}

    def refresh(self) -> list[str]:
        """Return the workers that can be used now, in the order in which they connected. New ones are checked."""
        connected = list(_ask_scheduler(self.on, self._connected_workers))
        self.usable = [address for address in self.usable if address in connected]
        new = [address for address in connected if address not in self.usable and address not in self.refused]
        with ThreadPoolExecutor(MAX_CHECKS_AT_ONCE) as threads:
            for address, reason in zip(new, threads.map(self._mismatch, new), strict=True):
                if reason:
                    self.refuse(address, reason)
                else:
                    self.usable.append(address)
        return self.usable

    def _connected_workers(self) -> dict[str, Any]:
        info: dict[str, Any] = self.client.scheduler_info()
        if "workers" not in info:  # a client that has finally lost its scheduler returns an empty answer
            raise OSError("the connection is closed")
        workers: dict[str, Any] = info["workers"]
        return workers

    def usable_for_measuring(self) -> list[str]:
        """Return the workers with the same processor as this machine, because their latencies are comparable."""
        return [address for address in self.usable if address in self._same_processor]

    def active_keys(self) -> set[Any]:
        """Return the keys of the jobs that the scheduler has sent to workers or is about to send."""
        return {key for keys in _ask_scheduler(self.on, self.client.processing).values() for key in keys}

    def refuse(self, address: str, reason: str) -> None:
        """Stop using a worker and report why in one line."""
        self.refused[address] = reason
        self.usable = [other for other in self.usable if other != address]
        self._say("workers", f"{address} is not used: {reason}")

    def why_none_usable(self) -> str:
        """Return why no worker can be used."""
        if self.usable:
            return (
                f"no worker has the processor of this machine ({self._local_facts['processor']}), whose latencies are "
                "to be measured; start a worker that has it, or run the command on a machine like the workers"
            )
        if not self.refused:
            return "the scheduler has no workers; start one with `dask worker`"
        reasons = "; ".join(f"{worker}: {reason}" for worker, reason in self.refused.items())
        return f"no worker matches this machine: {reasons}"

    def _mismatch(self, address: str) -> str:
        """Return how a worker differs from this machine, or nothing if it can be used."""
        try:
            answers = self.client.run(
                machine_facts.local_facts,
                self._probe,
                workers=[address],
                on_error="return",
                callback_timeout=WORKER_LIMIT_S,
            )
        except (OSError, TimeoutError) as error:
            return f"it does not answer ({error or type(error).__name__})"
        answer = answers.get(address)
        if "No module named" in str(answer):  # an ImportError, or only its text
            return "its Python lacks this edgekit"
        if not isinstance(answer, dict):
            return f"it does not report its facts ({answer})"
        if machine_facts.has_same_processor(answer, self._local_facts):
            self._same_processor.add(address)
        else:
            self._same_processor.discard(address)
        return machine_facts.summarize(machine_facts.differences(answer, self._local_facts))


@contextmanager
def connect(on: str, folder: Path | None, say: OnLine) -> Iterator[SchedulerWorkers]:
    """Connect to the scheduler at `on` and check its workers.

    Raises
    ------
    ConfigError
        The scheduler does not answer or has no worker that can be used.
    """
    address = parse_address(on)
    try:
        from distributed import Client
    except ImportError:
        raise ConfigError(f"--on {on}: needs Dask: pip install distributed") from None
    with _silence_dask_logs(), _probe_file(folder) as probe:
        try:
            client = Client(address, timeout=SCHEDULER_LIMIT_S, set_as_default=False, name="edgekit")
        except (OSError, TimeoutError, ValueError) as error:
            raise ConfigError(
                f"--on {on}: no scheduler answers there within {SCHEDULER_LIMIT_S:g} s "
                f"({_first_line(error)}); start one with `dask scheduler`"
            ) from None
        try:
            workers = SchedulerWorkers(client, on, say, probe)
            _wait_for_worker(workers)
            yield workers
        finally:
            client.close(timeout=2)


def parse_address(on: str) -> str:
    """Return the address in the form that Dask uses.

    Raises
    ------
    ConfigError
        The address is malformed.
    """
    match = ADDRESS.fullmatch(on)
    if not match or not 0 < int(match[3]) < 65_536:
        raise ConfigError(f"--on: got {on!r}; use dask://HOST:PORT, the address that `dask scheduler` shows")
    scheme = "tcp" if match[1] == "dask" else match[1]
    return f"{scheme}://{match[2]}:{match[3]}"


def _wait_for_worker(workers: SchedulerWorkers) -> None:
    pause, waited_s = threading.Event(), 0.0
    while not workers.refresh():
        if workers.refused or waited_s >= FIRST_WORKER_LIMIT_S:
            raise ConfigError(f"--on {workers.on}: {workers.why_none_usable()}")
        pause.wait(0.5)
        waited_s += 0.5


def _ask_scheduler(on: str, request: Any) -> Any:
    try:
        return request()
    except (OSError, TimeoutError) as error:
        raise ResourceError(
            f"--on {on}: the scheduler no longer answers ({_first_line(error)}); finished work is kept, so run the "
            f"same command again"
        ) from None


@contextmanager
def _probe_file(folder: Path | None) -> Iterator[Path | None]:
    """Create a new file in the folder for workers to read, and yield its path, or None if there is no folder."""
    if folder is None:
        yield None
        return
    make_folder(folder)
    path = folder.resolve() / f".workers.{os.getpid()}.tmp"
    try:
        path.write_text(uuid.uuid4().hex, encoding="utf-8")
        yield path
    finally:
        remove_quietly(path)


@contextmanager
def _silence_dask_logs() -> Iterator[None]:
    """Silence Dask's own log, which would repeat in many lines what edgekit reports in one error."""
    previous = {name: logging.getLogger(name).level for name in LOGGERS}
    for name in LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for name, level in previous.items():
            logging.getLogger(name).setLevel(level)


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [""])[0] or type(error).__name__
