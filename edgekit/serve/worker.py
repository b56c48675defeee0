"""One worker process: its own interpreters, one event loop, and a line to the supervisor.

Started by `supervisor.py` with inherited descriptors: the listening socket, the control socket, the counters.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import resource
import signal
import socket
import struct
import sys
from contextlib import suppress
from email.utils import formatdate
from typing import TYPE_CHECKING, Any

import orjson
import uvloop
from uvicorn.config import Config
from uvicorn.server import ServerState

from edgekit.device.commands.serve import Settings
from edgekit.runner.native_stderr import quiet_native
from edgekit.serve.app import App
from edgekit.serve.connection import ConnectionLimits, GuardedProtocol
from edgekit.serve.counters import FIELDS, Memory
from edgekit.serve.handover import Secrets, received
from edgekit.serve.load_shedding import EarlyRefusal
from edgekit.serve.log import log, unhandled
from edgekit.serve.repository import Entry
from edgekit.serve.served_model import ServedModel

if TYPE_CHECKING:
    from edgekit.serve.cache import WorkerCache
    from edgekit.serve.tracing import Tracer

IDLE_CHECK_S = 0.05
MOST_UNREAD_BYTES = 1 << 20
"""What a supervisor that is busy has not read yet; sketches that come meanwhile are left out."""
SO_ATTACH_FILTER = 26
"""Of Linux' <asm-generic/socket.h>; Python has no name for it."""


class Worker:
    """The process's parts, put together."""

    def __init__(
        self,
        settings: Settings,
        number: int,
        listening: socket.socket,
        memory: Memory,
        secrets: Secrets,
    ) -> None:
        self.settings, self.number, self.listening, self.memory = settings, number, listening, memory
        self.app = App(settings, memory, secrets.token_bytes, number)
        self.tracer = _tracer(settings) if settings.trace_to else None
        self.state = ServerState()
        self.server: asyncio.AbstractServer | None = None
        self.grpc: Any = None
        self.remembered = _remembered(settings, number, secrets.redis) if settings.cache_bytes else None
        self._closing: set[asyncio.Task[None]] = set()

    async def listen(self) -> None:
        """Accept connections from now on."""
        settings = self.settings
        asgi: Any = self.app
        refused_late = None
        if self.tracer is not None:
            from edgekit.serve.tracing import TracingMiddleware

            asgi, refused_late = TracingMiddleware(asgi, self.tracer), self.tracer.refused_late
        config = Config(
            asgi, ws="none", lifespan="off", log_config=None, access_log=False, proxy_headers=False,
            server_header=False, date_header=False, interface="asgi3",
            timeout_keep_alive=int(settings.keep_alive_s), ssl_certfile=settings.certificate or None,
            ssl_keyfile=settings.key or None,
        )  # fmt: skip
        config.load()
        GuardedProtocol.lag, GuardedProtocol.early = self.app.lag, EarlyRefusal(self.app, refused_late)
        GuardedProtocol.limits = ConnectionLimits(
            settings.receive_s, settings.most_header_bytes, settings.most_connections
        )
        self.server = await asyncio.get_running_loop().create_server(
            lambda: GuardedProtocol(config=config, server_state=self.state, app_state={}),
            sock=self.listening,
            ssl=config.ssl,
            ssl_handshake_timeout=settings.receive_s if config.ssl else None,
        )
        if settings.grpc_port >= 0:
            os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # it would log what clients send, as they send it
            from edgekit.serve import grpc_app

            self.grpc = await grpc_app.listen(self.app, self.tracer)
        self.app.is_ready = True
        self._clock = asyncio.create_task(self._keep_time())

    async def _keep_time(self) -> None:
        """The header `Date`, which RFC 9110 asks of whoever has a clock; and what the cache holds, for metrics."""
        row = self.app.row
        row[FIELDS["cache_bytes"]] = row[FIELDS["cache_entries"]] = 0  # of a worker that was killed
        while True:
            self.state.default_headers = [(b"date", formatdate(usegmt=True).encode())]
            if self.remembered is not None:
                store = self.remembered.store
                row[FIELDS["cache_bytes"]], row[FIELDS["cache_entries"]] = store.size_bytes, store.entries
            await asyncio.sleep(1)

    async def serve(self, entries: list[Entry]) -> None:
        """Serve exactly these: new ones are opened beside the old, then all names change at once."""
        app = self.app
        had = {served.bundle.identity: served for served in app.versions.values()}
        models: dict[str, ServedModel] = {}
        versions: dict[tuple[str, str], ServedModel] = {}
        for entry in entries:  # in the order of versions: the highest keeps the name
            served = had.get(entry.bundle.identity)
            if served is None or served.name != entry.names[0]:
                row = self.memory.row(self.number, entry.slot)
                row[FIELDS["pending"]] = 0  # of a worker that was killed
                served = await asyncio.to_thread(_open, entry, self.settings, row)
                if self.remembered is not None:
                    await served.put_cache(self.remembered)
                    if self.number == 0 and served.cache is not None:
                        log(f"{served.name}: {served.cache.state}")
            for name in entry.names:
                models[name] = served
                versions[name, entry.bundle.version] = served
        app.slots = {entry.bundle.identity: entry.slot for entry in entries}
        app.models, app.versions = models, versions
        kept = set(map(id, versions.values()))
        for served in had.values():
            if id(served) not in kept:
                closing = asyncio.create_task(_close(served))
                self._closing.add(closing)
                closing.add_done_callback(self._closing.discard)

    async def drain(self) -> None:
        """Not ready any more; answer what comes for a while, and close each connection behind its answer; then end."""
        self.app.is_draining = True
        await asyncio.sleep(self.settings.drain_s)
        if self.server is not None:
            _let_nobody_in(self.listening)
            await asyncio.sleep(2 * IDLE_CHECK_S)  # whoever is in already is accepted meanwhile
            self.server.close()
        for connection in list(self.state.connections):
            connection.shutdown()
        grpc = asyncio.create_task(self.grpc.stop(self.settings.stop_s)) if self.grpc is not None else None
        waited = 0.0
        while self.state.connections and waited < self.settings.stop_s:
            await asyncio.sleep(IDLE_CHECK_S)
            waited += IDLE_CHECK_S
        if grpc is not None:
            await grpc
        if self.tracer is not None:
            await self.tracer.stop()


def _tracer(settings: Settings) -> Tracer:
    from edgekit.serve.tracing import Tracer

    return Tracer(settings)


def _remembered(settings: Settings, number: int, redis: str) -> WorkerCache:
    from edgekit.serve.cache import AnswerStore, WorkerCache

    shared = None
    if redis:
        from edgekit.serve.redis_cache import RedisCache

        shared = RedisCache(redis, says=number == 0)
    return WorkerCache(AnswerStore(settings.cache_bytes, settings.cache_ttl_s), shared)


def _let_nobody_in(listening: socket.socket) -> None:
    """Have the system drop what would begin a connection: one that is made and never accepted loses its request.

    A client whose SYN is dropped sends it again a second later, and is then refused.
    """
    if listening.family == socket.AF_UNIX:
        return
    flags, is_ack = 13, 0x10  # of a TCP header: the byte that holds them, and the one that only a first segment lacks
    steps = ((0x30, 0, 0, flags), (0x45, 0, 1, is_ack), (0x06, 0, 0, 0xFFFFFFFF), (0x06, 0, 0, 0))
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    with suppress(OSError):
        listening.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HP", 4, ctypes.addressof(program)))


def _open(entry: Entry, settings: Settings, row: memoryview) -> ServedModel:
    with quiet_native():  # LiteRT reports to every user that it made a delegate
        return ServedModel(entry.names[0], entry.bundle, settings, row)


async def _close(served: ServedModel) -> None:
    """Let go of a model when no request holds it, and what runs for a caller that has gone is finished."""
    while served.users or not served.batcher.is_idle:
        await asyncio.sleep(IDLE_CHECK_S)
    served.close()


async def run(worker: Worker, control: socket.socket) -> None:
    """Do what the supervisor says, until it says to stop, or is gone."""
    asyncio.get_running_loop().set_exception_handler(unhandled)
    reader, writer = await asyncio.open_connection(sock=control, limit=1 << 26)

    def say(**facts: Any) -> None:
        writer.write(json.dumps(facts).encode() + b"\n")

    listening, watching = False, None
    while line := await reader.readline():
        order = json.loads(line)
        if order["do"] == "drain":
            break
        if order["do"] == "tell":
            worker.app.verdicts = order["verdicts"]
            continue
        try:
            await worker.serve([Entry.from_dict(each) for each in order["entries"]])
            if not listening:
                await worker.listen()
                listening = True
                if worker.settings.watch:
                    watching = asyncio.create_task(_watch(worker, writer))
        except Exception as error:  # told to the supervisor, which knows what to do
            say(number=order["number"], error=str(error) or type(error).__name__)
        else:
            say(number=order["number"])
    if watching is not None:
        watching.cancel()
    await worker.drain()


async def _watch(worker: Worker, writer: asyncio.StreamWriter) -> None:
    """Look at samples between answers, and tell the supervisor."""
    from edgekit.serve.watch import watch

    def send(sketches: dict[str, Any]) -> None:
        if writer.transport.get_write_buffer_size() < MOST_UNREAD_BYTES:
            writer.write(orjson.dumps({"sketches": sketches}) + b"\n")

    await watch(
        lambda: [(each.bundle.identity, each.watcher) for each in worker.app.distinct() if each.watcher is not None],
        send,
    )


def main(arguments: list[str]) -> None:
    """`worker.py NUMBER LISTENING CONTROL MEMORY SETTINGS`; the last four are file descriptors."""
    number, listening_fd, control_fd, memory_fd, settings_fd = map(int, arguments)
    settings, secrets = received(settings_fd)
    listening, control = socket.socket(fileno=listening_fd), socket.socket(fileno=control_fd)
    for each in (listening, control):
        each.setblocking(False)
    for number_ in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number_, signal.SIG_IGN)  # the supervisor says when to stop
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # the usual 1024 are fewer than the connections
    memory = Memory(settings.workers, memory_fd)
    uvloop.run(run(Worker(settings, number, listening, memory, secrets), control))


if __name__ == "__main__":
    main(sys.argv[1:])
