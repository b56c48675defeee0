"""The workers of a Dask scheduler: each is checked before it is used, and told where it is foreign.

The works are sent by this process, one by one, to a worker by its address. So a work whose worker dies or lies goes to
another one, and a worker that has come back is checked like any new one.
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
from edgekit.workbook.workers import facts
from edgekit.workbook.workers.work import OnLine

if TYPE_CHECKING:
    from distributed import Client

ADDRESS = re.compile(r"(dask|tcp|tls)://([^\s/:]+|\[[0-9a-fA-F:]+\]):(\d{1,5})/?")
SCHEDULER_S = 10.0
"""Within which a scheduler has to answer."""
WORKER_S = 20.0
"""Within which a worker has to say what it is."""
FIRST_WORKER_S = 30.0
"""Within which a scheduler has to have a worker: one that was started together with it needs a few seconds."""
ABOUT_AT_ONCE = 16
LOGGERS = ("distributed", "tornado", "asyncio")


class Workers:
    """The workers of a scheduler, of which only those that are as this machine is are used."""

    def __init__(self, client: Client, on: str, say: OnLine, probe: Path | None) -> None:
        self.client, self.on, self._say = client, on, say
        self._probe = str(probe) if probe else None
        self._ours = facts.here(self._probe)
        self.usable: list[str] = []
        self._measure_alike: set[str] = set()
        self.refused: dict[str, str] = {}

    def look(self) -> list[str]:
        """Who may be used now, in the order of their coming; new ones are checked, foreign ones are told."""
        there = list(_asked(self.on, self._workers))
        self.usable = [address for address in self.usable if address in there]
        new = [address for address in there if address not in self.usable and address not in self.refused]
        with ThreadPoolExecutor(ABOUT_AT_ONCE) as threads:
            for address, why in zip(new, threads.map(self._why_not, new), strict=True):
                if why:
                    self.refuse(address, why)
                else:
                    self.usable.append(address)
        return self.usable

    def _workers(self) -> dict[str, Any]:
        info: dict[str, Any] = self.client.scheduler_info()
        if "workers" not in info:  # a client that has lost its scheduler for good answers with nothing
            raise OSError("the connection is closed")
        found: dict[str, Any] = info["workers"]
        return found

    def for_measuring(self) -> list[str]:
        """Those with the processor of this machine, which latencies are to be told of."""
        return [address for address in self.usable if address in self._measure_alike]

    def under_way(self) -> set[Any]:
        """The keys of what the scheduler has sent to workers, or is about to."""
        return {key for keys in _asked(self.on, self.client.processing).values() for key in keys}

    def refuse(self, address: str, why: str) -> None:
        """Use that worker no more, and say so in a line."""
        self.refused[address] = why
        self.usable = [each for each in self.usable if each != address]
        self._say("workers", f"{address} is not used: {why}")

    def none_left(self) -> str:
        """Why nobody can be used, in words."""
        if self.usable:
            return (
                f"no worker has the processor of this machine ({self._ours['processor']}), which is to be measured; "
                "start one that has, or run the command on a machine like the workers"
            )
        if not self.refused:
            return "the scheduler has no workers; start one with `dask worker`"
        return f"no worker is as this machine is: {'; '.join(f'{who}: {why}' for who, why in self.refused.items())}"

    def _why_not(self, address: str) -> str:
        """Words on what makes it foreign; empty where nothing does."""
        try:
            answers = self.client.run(
                facts.here, self._probe, workers=[address], on_error="return", callback_timeout=WORKER_S
            )
        except (OSError, TimeoutError) as error:
            return f"it does not answer ({error or type(error).__name__})"
        found = answers.get(address)
        if "No module named" in str(found):  # an ImportError, which may come as its text
            return "its Python lacks this edgekit"
        if not isinstance(found, dict):
            return f"it does not say what it is ({found})"
        if facts.measures_alike(found, self._ours):
            self._measure_alike.add(address)
        else:
            self._measure_alike.discard(address)
        return facts.in_a_line(facts.differences(found, self._ours))


@contextmanager
def connect(on: str, folder: Path | None, say: OnLine) -> Iterator[Workers]:
    """The checked workers of the scheduler at `on`; ConfigError in one line where there are none."""
    address = parse(on)
    try:
        from distributed import Client
    except ImportError:
        raise ConfigError(f"--on {on}: needs Dask: pip install distributed") from None
    with _quiet(), _probe(folder) as probe:
        try:
            client = Client(address, timeout=SCHEDULER_S, set_as_default=False, name="edgekit")
        except (OSError, TimeoutError, ValueError) as error:
            raise ConfigError(
                f"--on {on}: no scheduler answers there within {SCHEDULER_S:g} s "
                f"({_first_line(error)}); start one with `dask scheduler`"
            ) from None
        try:
            workers = Workers(client, on, say, probe)
            _first(workers)
            yield workers
        finally:
            client.close(timeout=2)


def parse(on: str) -> str:
    """The address as Dask has it; ConfigError for another."""
    found = ADDRESS.fullmatch(on)
    if not found or not 0 < int(found[3]) < 65_536:
        raise ConfigError(f"--on: got {on!r}; use dask://HOST:PORT, the address that `dask scheduler` shows")
    scheme = "tcp" if found[1] == "dask" else found[1]
    return f"{scheme}://{found[2]}:{found[3]}"


def _first(workers: Workers) -> None:
    pause, waited_s = threading.Event(), 0.0
    while not workers.look():
        if workers.refused or waited_s >= FIRST_WORKER_S:
            raise ConfigError(f"--on {workers.on}: {workers.none_left()}")
        pause.wait(0.5)
        waited_s += 0.5


def _asked(on: str, question: Any) -> Any:
    try:
        return question()
    except (OSError, TimeoutError) as error:
        raise ResourceError(
            f"--on {on}: the scheduler no longer answers ({_first_line(error)}); what is finished is kept, run "
            "the same command again"
        ) from None


@contextmanager
def _probe(folder: Path | None) -> Iterator[Path | None]:
    """A file that is new in the folder, for workers to read; none without a folder."""
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
def _quiet() -> Iterator[None]:
    """What goes wrong with a line is told by an error here; Dask's own log would repeat it in many lines."""
    before = {name: logging.getLogger(name).level for name in LOGGERS}
    for name in LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [""])[0] or type(error).__name__
