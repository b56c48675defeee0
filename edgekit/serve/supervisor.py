"""The first process: validates bundles, starts workers on one socket and again where they die, stops in order."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from edgekit.device.commands.serve import Settings
from edgekit.runner import bundle as bundles
from edgekit.runner.errors import BackendError, InputError, RunnerError
from edgekit.serve import repository
from edgekit.serve.counters import Memory
from edgekit.serve.handover import Secrets, hand_over, path_of, sealed
from edgekit.serve.log import log
from edgekit.serve.repository import Entry, ValidatedBundle

if TYPE_CHECKING:
    from edgekit.serve.watch import Verdicts

Saw = Callable[["dict[str, Any]"], None]
JUDGE_S = 1.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 30.0
"""Before a worker that died is started again: doubled each time, from the first again once one has lived."""
LIVED_S = 60.0
LONGEST_OPENING_S = 600.0
MOST_UNREAD_BYTES = 1 << 20
"""Verdicts for a worker that is stuck do not pile up beyond."""
BACKLOG = 2048


class WorkerProcess:
    """A worker, seen from here."""

    def __init__(self, process: asyncio.subprocess.Process, control: socket.socket, saw: Saw) -> None:
        self.process, self.control, self._saw = process, control, saw
        self.started_s = monotonic()
        self._answers: dict[int, asyncio.Future[None]] = {}
        self._last = 0
        self._writer: asyncio.StreamWriter | None = None
        self._listening: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Connect the line to it."""
        reader, self._writer = await asyncio.open_connection(sock=self.control, limit=1 << 26)
        self._listening = asyncio.create_task(self._listen(reader))

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        try:
            while line := await reader.readline():
                said = json.loads(line)
                if "sketches" in said:
                    self._saw(said["sketches"])
                    continue
                answer = self._answers.pop(said["number"], None)
                if answer is None or answer.done():
                    continue
                if "error" in said:
                    answer.set_exception(BackendError(said["error"]))
                else:
                    answer.set_result(None)
        except OSError:  # killed with an order unread
            pass
        finally:
            for answer in self._answers.values():
                if not answer.done():
                    answer.set_exception(BackendError("the worker ended"))

    async def serve(self, entries: list[Entry]) -> None:
        """BackendError where the worker cannot serve these; it then serves what it served before."""
        self._last += 1
        answer = self._answers[self._last] = asyncio.get_running_loop().create_future()
        self._say(do="serve", number=self._last, entries=[entry.to_dict() for entry in entries])
        await asyncio.wait_for(answer, LONGEST_OPENING_S)

    def tell(self, verdicts: dict[str, Any]) -> None:
        """Whether its models are still right; nothing where it has not read what it was told before."""
        if self._writer is None or self._writer.transport.get_write_buffer_size() < MOST_UNREAD_BYTES:
            self._say(do="tell", verdicts=verdicts)

    def drain(self) -> None:
        """Finish what is there, then end."""
        self._say(do="drain")

    def _say(self, **order: Any) -> None:
        has_ended = self._listening is not None and self._listening.done()  # nobody would answer
        if self._writer is None or self._writer.is_closing() or has_ended:
            raise BackendError("the worker ended")
        self._writer.write(json.dumps(order).encode() + b"\n")


class Supervisor:
    """What is served, by whom. `changing` lets one change of the models happen at a time."""

    def __init__(self, settings: Settings, secrets: Secrets) -> None:
        settings, self._grpc = _keep_grpc_port(settings)
        self.settings, self.secrets = _with_kept_pair(settings), secrets
        self._handed = hand_over(self.settings, secrets)
        self._copies: dict[str, int] = {}
        self.memory = Memory(settings.workers)
        self.listening = _listen(settings)
        self.entries: list[Entry] = []
        self.slots: dict[str, int] = {}
        self.changing = asyncio.Lock()
        self.stopping = asyncio.Event()
        self._workers: dict[int, WorkerProcess] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self.verdicts: Verdicts | None = None

    @property
    def address(self) -> str:
        """Where it listens."""
        settings = self.settings
        if settings.uds:
            return f"unix:{settings.uds}"
        host, port = self.listening.getsockname()[:2]
        return f"{'https' if settings.certificate else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"

    @property
    def grpc_address(self) -> str:
        """Host and port of gRPC, as its clients take them."""
        host = self.settings.host
        return f"{f'[{host}]' if ':' in host else host}:{self.settings.grpc_port}"

    def processes(self) -> dict[str, int]:
        """Process ids of this one and of the workers that run, by the names that metrics give them."""
        workers = {f"worker{number}": worker.process.pid for number, worker in sorted(self._workers.items())}
        return {"supervisor": os.getpid(), **workers}

    async def prove(self, paths: list[str]) -> list[ValidatedBundle]:
        """One after the other, for they are measured."""
        settings = self.settings
        proofs = []
        try:
            for path in paths:
                bundle = await repository.validate_in_child(path, settings.threads, settings.interpreter)
                log(f"{os.path.basename(path)}: proven on {bundle.interpreter} {bundle.interpreter_version}; "
                    f"{bundle.curve.verdict()}")  # fmt: skip
                proofs.append(await asyncio.to_thread(self._copied, bundle))
        except BaseException:
            self._forget_copies()
            raise
        return proofs

    def _copied(self, bundle: ValidatedBundle) -> ValidatedBundle:
        """With a copy of the bytes that were proven, for workers that open it now, or when they are started again."""
        if bundle.identity not in self._copies:
            try:
                with open(bundle.path, "rb") as stream:
                    descriptor = sealed("edgekit-bundle", stream)
            except OSError as error:
                raise BackendError(f"{bundle.path}: cannot be kept in memory: {error.strerror or error}") from None
            if _identity(path_of(descriptor)) != bundle.identity:
                os.close(descriptor)
                raise BackendError(f"{bundle.path}: was changed while it was proven; load it again")
            self._copies[bundle.identity] = descriptor
        return replace(bundle, copy=path_of(self._copies[bundle.identity]))

    def _forget_copies(self) -> None:
        """Of what is not served any more, or could not be."""
        served = {entry.bundle.identity for entry in self.entries}
        for identity in self._copies.keys() - served:
            os.close(self._copies.pop(identity))

    async def start(self) -> None:
        """Prove all bundles, start all workers; RunnerError where one of them cannot be."""
        proofs = await self.prove(repository.find(self.settings.bundles))
        self.entries = repository.assign(proofs, self.slots)
        if self.settings.watch:
            from edgekit.serve.watch import Verdicts

            self.verdicts = Verdicts()
            await asyncio.to_thread(self.verdicts.watch, self.entries)  # it reads whole bundles
            self._tasks.append(asyncio.create_task(self._evaluate(self.verdicts)))
        try:
            self.listening.listen(BACKLOG)  # not before: whoever connects must not wait for the proofs
        except OSError as error:
            raise _taken(self.settings, error) from None
        for number in range(self.settings.workers):
            await self._start_worker(number)
            self._tasks.append(asyncio.create_task(self._keep(number)))

    async def change(self, proofs: list[ValidatedBundle]) -> None:
        """Serve exactly these, in all workers; where one cannot, all keep what they had and BackendError says why."""
        slots = dict(self.slots)
        entries = repository.assign(proofs, slots)
        for identity in slots.keys() - self.slots.keys():
            self.memory.clear(slots[identity])
        workers = list(self._workers.values())
        try:
            await asyncio.gather(*(worker.serve(entries) for worker in workers))
        except (BackendError, asyncio.TimeoutError):
            await asyncio.gather(*(worker.serve(self.entries) for worker in workers), return_exceptions=True)
            self._forget_copies()
            raise
        kept = {entry.bundle.identity for entry in entries}
        self.entries, self.slots = entries, {each: slot for each, slot in slots.items() if each in kept}
        self._forget_copies()
        if self.verdicts is not None:
            await asyncio.to_thread(self.verdicts.watch, entries)

    async def _evaluate(self, verdicts: Verdicts) -> None:
        """Hold what the workers saw against validation, and tell all of them."""
        while True:
            await asyncio.sleep(JUDGE_S)
            found = verdicts.evaluate()
            for worker in list(self._workers.values()):
                with suppress(BackendError):  # it has ended
                    worker.tell(found)

    def _saw(self, number: int, life: int, sketches: dict[str, Any]) -> None:
        if self.verdicts is not None:
            self.verdicts.said(number, life, sketches)

    async def _start_worker(self, number: int) -> None:
        ours, theirs = socket.socketpair()
        descriptors = (self.listening.fileno(), theirs.fileno(), self.memory.descriptor, self._handed)
        command = (sys.executable, "-P", "-m", "edgekit.serve.worker", str(number))
        process = await asyncio.create_subprocess_exec(
            *command, *map(str, descriptors), pass_fds=descriptors, stdin=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip  # a session of its own: Ctrl-C in a terminal is for the supervisor alone
        theirs.close()
        ours.setblocking(False)
        worker = WorkerProcess(process, ours, partial(self._saw, number, process.pid))
        await worker.open()
        try:
            await worker.serve(self.entries)
        except BaseException:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            raise
        self._workers[number] = worker

    async def _keep(self, number: int) -> None:
        """Start a worker again whenever it ends, until the server stops."""
        pause_s = FIRST_PAUSE_S
        while True:
            worker = self._workers.get(number)
            if worker is not None:
                code = await worker.process.wait()
                if self.stopping.is_set():
                    return
                del self._workers[number]
                if monotonic() - worker.started_s > LIVED_S:
                    pause_s = FIRST_PAUSE_S
                log(f"worker {number} ended ({_ending(code)}); a new one starts in {pause_s:g} s")
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            try:
                async with self.changing:
                    await self._start_worker(number)
            except (RunnerError, OSError, asyncio.TimeoutError) as error:
                log(f"worker {number} cannot start: {error}; the next try is in {pause_s:g} s")

    async def stop(self) -> None:
        """Every worker drains; whoever has not ended in time is killed."""
        self.stopping.set()
        self.listening.close()
        if self._grpc is not None:
            self._grpc.close()
        for task in self._tasks:
            task.cancel()
        workers = list(self._workers.values())
        for worker in workers:
            with suppress(BackendError):
                worker.drain()
        limit_s = self.settings.drain_s + self.settings.stop_s + 5
        ended = [asyncio.create_task(worker.process.wait()) for worker in workers]
        if ended:
            _, late = await asyncio.wait(ended, timeout=limit_s)
            if late:
                log(f"{len(late)} workers did not end in {limit_s:g} s and are killed")
        for worker in workers:
            with suppress(ProcessLookupError):
                worker.process.kill()
        if self.settings.uds:
            with suppress(OSError):
                os.unlink(self.settings.uds)


def _identity(path: str) -> str:
    try:
        return bundles.read(path).identity
    except RunnerError:
        return ""


def _with_kept_pair(settings: Settings) -> Settings:
    """Settings that name copies of certificate and key, so that workers which start later have the same pair."""
    if not settings.certificate:
        return settings
    return replace(settings, certificate=_kept(settings.certificate), key=_kept(settings.key))


def _kept(path: str) -> str:
    with open(path, "rb") as stream:
        return path_of(sealed("edgekit-tls", stream))


def _ending(code: int) -> str:
    return f"exit code {code}" if code >= 0 else signal.Signals(-code).name


def _listen(settings: Settings) -> socket.socket:
    """The one socket of all workers, bound; InputError where it cannot be had."""
    try:
        if settings.uds:
            listening = socket.socket(socket.AF_UNIX)
            listening.bind(settings.uds)
        else:
            family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
            listening = socket.socket(family)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind((settings.host, settings.port))
    except OSError as error:
        raise _taken(settings, error) from None
    listening.setblocking(False)
    return listening


def _taken(settings: Settings, error: OSError) -> InputError:
    where = settings.uds or f"{settings.host}:{settings.port}"
    other = "--uds" if settings.uds else "--port or --host"
    return InputError(f"{where}: cannot listen there: {error.strerror or error}; choose another {other}")


def _keep_grpc_port(settings: Settings) -> tuple[Settings, socket.socket | None]:
    """Settings with the gRPC port that is really used, and what keeps it; InputError where it is taken.

    The kept socket never listens, so no connection comes to it. With SO_REUSEPORT a second server of the same user
    would share the port in silence; a first try without that option finds it.
    """
    if settings.grpc_port < 0:
        return settings, None
    try:
        if settings.grpc_port:
            _bound(settings, socket.SO_REUSEADDR).close()
        kept = _bound(settings, socket.SO_REUSEPORT)
    except OSError as error:
        raise InputError(
            f"{settings.host}:{settings.grpc_port}: cannot listen there: {error.strerror or error}; "
            "choose another --grpc-port, or none"
        ) from None
    return replace(settings, grpc_port=kept.getsockname()[1]), kept


def _bound(settings: Settings, option: int) -> socket.socket:
    made = socket.socket(socket.AF_INET6 if ":" in settings.host else socket.AF_INET)
    try:
        made.setsockopt(socket.SOL_SOCKET, option, 1)
        made.bind((settings.host, settings.grpc_port))
    except OSError:
        made.close()
        raise
    return made
