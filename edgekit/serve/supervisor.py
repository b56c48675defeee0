"""The main process: validates bundles, starts workers on one socket, restarts them if they die, and shuts down."""

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
from edgekit.serve.counters import SharedCounters
from edgekit.serve.handover import Secrets, hand_over, path_of, sealed_memory
from edgekit.serve.log import log
from edgekit.serve.repository import RepositoryEntry, ValidatedBundle

if TYPE_CHECKING:
    from edgekit.serve.watch import Verdicts

OnSketches = Callable[["dict[str, Any]"], None]
VERDICT_INTERVAL_S = 1.0
FIRST_PAUSE_S, MAX_PAUSE_S = 0.1, 30.0
"""The first and the longest pause before a dead worker is restarted.

The pause doubles with each restart, and begins anew after a worker has lived for `LONG_LIVED_S`.
"""
LONG_LIVED_S = 60.0
SERVE_TIMEOUT_S = 600.0
MAX_UNREAD_BYTES = 1 << 20
"""Verdicts are not sent to a worker while it has more unread bytes than this."""
BACKLOG = 2048


class WorkerProcess:
    """A worker process, and the socket over which the supervisor controls it.

    `on_sketches` is called with the worker's summaries (sketches) of the samples that it has watched.
    """

    def __init__(self, process: asyncio.subprocess.Process, control: socket.socket, on_sketches: OnSketches) -> None:
        self.process, self.control, self._on_sketches = process, control, on_sketches
        self.started_s = monotonic()
        self._answers: dict[int, asyncio.Future[None]] = {}
        self._last_number = 0
        self._writer: asyncio.StreamWriter | None = None
        self._listening: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Connect to the worker."""
        reader, self._writer = await asyncio.open_connection(sock=self.control, limit=1 << 26)
        self._listening = asyncio.create_task(self._listen(reader))

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        try:
            while line := await reader.readline():
                message = json.loads(line)
                if "sketches" in message:
                    self._on_sketches(message["sketches"])
                    continue
                answer = self._answers.pop(message["number"], None)
                if answer is None or answer.done():
                    continue
                if "error" in message:
                    answer.set_exception(BackendError(message["error"]))
                else:
                    answer.set_result(None)
        except OSError:  # the worker was killed before it read the last order
            pass
        finally:
            for answer in self._answers.values():
                if not answer.done():
                    answer.set_exception(BackendError("the worker ended"))

    async def serve(self, entries: list[RepositoryEntry]) -> None:
        """Make the worker serve exactly these models.

        Raises BackendError if it cannot, in which case it continues to serve its previous models.
        """
        self._last_number += 1
        answer = self._answers[self._last_number] = asyncio.get_running_loop().create_future()
        self._send(do="serve", number=self._last_number, entries=[entry.to_dict() for entry in entries])
        await asyncio.wait_for(answer, SERVE_TIMEOUT_S)

    def send_verdicts(self, verdicts: dict[str, Any]) -> None:
        """Send the verdicts on the watched models, unless the worker has too many unread ones."""
        if self._writer is None or self._writer.transport.get_write_buffer_size() < MAX_UNREAD_BYTES:
            self._send(do="show_verdicts", verdicts=verdicts)

    def drain(self) -> None:
        """Make the worker finish its requests and exit."""
        self._send(do="drain")

    def _send(self, **order: Any) -> None:
        has_ended = self._listening is not None and self._listening.done()  # there would be no reply
        if self._writer is None or self._writer.is_closing() or has_ended:
            raise BackendError("the worker ended")
        self._writer.write(json.dumps(order).encode() + b"\n")


class Supervisor:
    """The models that are served, and the workers that serve them.

    The lock `changing` ensures that only one change of the models happens at a time.
    """

    def __init__(self, settings: Settings, secrets: Secrets) -> None:
        settings, self._grpc_holder = _reserve_grpc_port(settings)
        self.settings, self.secrets = _with_copied_certificate(settings), secrets
        self._settings_descriptor = hand_over(self.settings, secrets)
        self._copies: dict[str, int] = {}
        self.memory = SharedCounters(settings.workers)
        self.listening = _listen(settings)
        self.entries: list[RepositoryEntry] = []
        self.slots: dict[str, int] = {}
        self.changing = asyncio.Lock()
        self.stopping = asyncio.Event()
        self._workers: dict[int, WorkerProcess] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self.verdicts: Verdicts | None = None

    @property
    def address(self) -> str:
        """The URL or socket path where the server listens."""
        settings = self.settings
        if settings.uds:
            return f"unix:{settings.uds}"
        host, port = self.listening.getsockname()[:2]
        return f"{'https' if settings.certificate else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"

    @property
    def grpc_address(self) -> str:
        """Host and port of the gRPC service, in the form that gRPC clients accept."""
        host = self.settings.host
        return f"{f'[{host}]' if ':' in host else host}:{self.settings.grpc_port}"

    def processes(self) -> dict[str, int]:
        """Return the process ids of the supervisor and the running workers by their names in the metrics."""
        workers = {f"worker{number}": worker.process.pid for number, worker in sorted(self._workers.items())}
        return {"supervisor": os.getpid(), **workers}

    async def validate(self, paths: list[str]) -> list[ValidatedBundle]:
        """Validate bundles one after the other, so that their latency measurements do not disturb each other."""
        settings = self.settings
        validated = []
        try:
            for path in paths:
                bundle = await repository.validate_in_child(path, settings.threads, settings.interpreter)
                log(f"{os.path.basename(path)}: validated on {bundle.interpreter} {bundle.interpreter_version}; "
                    f"{bundle.curve.summary()}")  # fmt: skip
                validated.append(await asyncio.to_thread(self._with_copy, bundle))
        except BaseException:
            self._forget_copies()
            raise
        return validated

    def _with_copy(self, bundle: ValidatedBundle) -> ValidatedBundle:
        """Copy the validated bytes to memory, where workers open the bundle now or after a restart."""
        if bundle.identity not in self._copies:
            try:
                with open(bundle.path, "rb") as stream:
                    descriptor = sealed_memory("edgekit-bundle", stream)
            except OSError as error:
                raise BackendError(f"{bundle.path}: cannot be copied to memory: {error.strerror or error}") from None
            if _identity(path_of(descriptor)) != bundle.identity:
                os.close(descriptor)
                raise BackendError(f"{bundle.path}: the file changed while it was validated; load it again")
            self._copies[bundle.identity] = descriptor
        return replace(bundle, copy=path_of(self._copies[bundle.identity]))

    def _forget_copies(self) -> None:
        """Free the copies of bundles that are not served."""
        served = {entry.bundle.identity for entry in self.entries}
        for identity in self._copies.keys() - served:
            os.close(self._copies.pop(identity))

    async def start(self) -> None:
        """Validate all bundles and start all workers. Raises RunnerError if any of this fails."""
        validated = await self.validate(repository.find_bundles(self.settings.bundles))
        self.entries = repository.assign_names(validated, self.slots)
        if self.settings.watch:
            from edgekit.serve.watch import Verdicts

            self.verdicts = Verdicts()
            await asyncio.to_thread(self.verdicts.watch, self.entries)  # reads whole bundles
            self._tasks.append(asyncio.create_task(self._evaluate(self.verdicts)))
        try:
            self.listening.listen(BACKLOG)  # only now, so that no client has to wait for the validation
        except OSError as error:
            raise _listen_error(self.settings, error) from None
        for number in range(self.settings.workers):
            await self._start_worker(number)
            self._tasks.append(asyncio.create_task(self._keep_running(number)))

    async def change(self, validated: list[ValidatedBundle]) -> None:
        """Serve exactly these bundles in all workers.

        If one worker cannot, all workers keep their previous models, and BackendError is raised with the reason.
        """
        slots = dict(self.slots)
        entries = repository.assign_names(validated, slots)
        for identity in slots.keys() - self.slots.keys():
            self.memory.clear(slots[identity])
        workers = list(self._workers.values())
        try:
            await asyncio.gather(*(worker.serve(entries) for worker in workers))
        except (BackendError, asyncio.TimeoutError):
            await asyncio.gather(*(worker.serve(self.entries) for worker in workers), return_exceptions=True)
            self._forget_copies()
            raise
        identities = {entry.bundle.identity for entry in entries}
        self.entries, self.slots = entries, {each: slot for each, slot in slots.items() if each in identities}
        self._forget_copies()
        if self.verdicts is not None:
            await asyncio.to_thread(self.verdicts.watch, entries)

    async def _evaluate(self, verdicts: Verdicts) -> None:
        """Compare the samples that the workers have watched with validation, and send the verdicts to all workers."""
        while True:
            await asyncio.sleep(VERDICT_INTERVAL_S)
            results = verdicts.evaluate()
            for worker in list(self._workers.values()):
                with suppress(BackendError):  # it has ended
                    worker.send_verdicts(results)

    def _on_sketches(self, number: int, process_id: int, sketches: dict[str, Any]) -> None:
        if self.verdicts is not None:
            self.verdicts.receive_sketches(number, process_id, sketches)

    async def _start_worker(self, number: int) -> None:
        control, worker_control = socket.socketpair()
        descriptors = (
            self.listening.fileno(),
            worker_control.fileno(),
            self.memory.descriptor,
            self._settings_descriptor,
        )
        command = (sys.executable, "-P", "-m", "edgekit.serve.worker", str(number))
        process = await asyncio.create_subprocess_exec(
            *command, *map(str, descriptors), pass_fds=descriptors, stdin=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip  # a session of its own: Ctrl-C in a terminal is for the supervisor alone
        worker_control.close()
        control.setblocking(False)
        worker = WorkerProcess(process, control, partial(self._on_sketches, number, process.pid))
        await worker.open()
        try:
            await worker.serve(self.entries)
        except BaseException:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            raise
        self._workers[number] = worker

    async def _keep_running(self, number: int) -> None:
        """Start the worker `number` again whenever its process dies, until the server stops."""
        pause_s = FIRST_PAUSE_S
        while True:
            worker = self._workers.get(number)
            if worker is not None:
                code = await worker.process.wait()
                if self.stopping.is_set():
                    return
                del self._workers[number]
                if monotonic() - worker.started_s > LONG_LIVED_S:
                    pause_s = FIRST_PAUSE_S
                log(f"worker {number} ended ({_exit_reason(code)}); a new one starts in {pause_s:g} s")
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, MAX_PAUSE_S)
            try:
                async with self.changing:
                    await self._start_worker(number)
            except (RunnerError, OSError, asyncio.TimeoutError) as error:
                log(f"worker {number} cannot start: {error}; the next try is in {pause_s:g} s")

    async def stop(self) -> None:
        """Let all workers finish their requests, and kill those that take too long."""
        self.stopping.set()
        self.listening.close()
        if self._grpc_holder is not None:
            self._grpc_holder.close()
        for task in self._tasks:
            task.cancel()
        workers = list(self._workers.values())
        for worker in workers:
            with suppress(BackendError):
                worker.drain()
        limit_s = self.settings.drain_s + self.settings.stop_s + 5
        exits = [asyncio.create_task(worker.process.wait()) for worker in workers]
        if exits:
            _, running = await asyncio.wait(exits, timeout=limit_s)
            if running:
                log(f"{len(running)} workers did not end in {limit_s:g} s and are killed")
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


def _with_copied_certificate(settings: Settings) -> Settings:
    """Replace certificate and key by in-memory copies, so that workers that are restarted later use the same pair."""
    if not settings.certificate:
        return settings
    return replace(settings, certificate=_copy_to_memory(settings.certificate), key=_copy_to_memory(settings.key))


def _copy_to_memory(path: str) -> str:
    with open(path, "rb") as stream:
        return path_of(sealed_memory("edgekit-tls", stream))


def _exit_reason(code: int) -> str:
    return f"exit code {code}" if code >= 0 else signal.Signals(-code).name


def _listen(settings: Settings) -> socket.socket:
    """Bind the socket that all workers share. Raises InputError if that fails."""
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
        raise _listen_error(settings, error) from None
    listening.setblocking(False)
    return listening


def _listen_error(settings: Settings, error: OSError) -> InputError:
    where = settings.uds or f"{settings.host}:{settings.port}"
    other = "--uds" if settings.uds else "--port or --host"
    return InputError(f"{where}: cannot listen there: {error.strerror or error}; choose another {other}")


def _reserve_grpc_port(settings: Settings) -> tuple[Settings, socket.socket | None]:
    """Reserve the gRPC port, and return settings with the actual port and the socket that holds it.

    The socket never listens, so it receives no connections. With SO_REUSEPORT a second server of the same user would
    share the port without an error, so the port is first bound without this option. Raises InputError if the port is in
    use.
    """
    if settings.grpc_port < 0:
        return settings, None
    try:
        if settings.grpc_port:
            _bind_grpc_port(settings, socket.SO_REUSEADDR).close()
        holder = _bind_grpc_port(settings, socket.SO_REUSEPORT)
    except OSError as error:
        raise InputError(
            f"{settings.host}:{settings.grpc_port}: cannot listen there: {error.strerror or error}; "
            "choose another --grpc-port, or none"
        ) from None
    return replace(settings, grpc_port=holder.getsockname()[1]), holder


def _bind_grpc_port(settings: Settings, option: int) -> socket.socket:
    bound = socket.socket(socket.AF_INET6 if ":" in settings.host else socket.AF_INET)
    try:
        bound.setsockopt(socket.SOL_SOCKET, option, 1)
        bound.bind((settings.host, settings.grpc_port))
    except OSError:
        bound.close()
        raise
    return bound
