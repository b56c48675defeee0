"""A worker process: its own interpreters, one event loop, and a connection to the supervisor.

`supervisor.py` starts it with inherited file descriptors: the listening socket, the control socket, the counters and
the settings.
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
from edgekit.serve.counters import FIELDS, SharedCounters
from edgekit.serve.handover import Secrets, read_handover
from edgekit.serve.load_shedding import EarlyRefusal
from edgekit.serve.log import log, unhandled
from edgekit.serve.repository import RepositoryEntry
from edgekit.serve.served_model import ServedModel

if TYPE_CHECKING:
    from edgekit.serve.cache import WorkerCache
    from edgekit.serve.tracing import Tracer

IDLE_CHECK_S = 0.05
MAX_UNREAD_BYTES = 1 << 20
"""Sketches, the worker's summaries of the samples that it has watched, are not sent while the supervisor has at least
this many unread bytes."""
SO_ATTACH_FILTER = 26
"""From Linux' <asm-generic/socket.h>; Python has no name for it."""


class Worker:
    """The parts of a worker process: the application, its listeners, the cache and tracing."""

    def __init__(
        self,
        settings: Settings,
        number: int,
        listening: socket.socket,
        memory: SharedCounters,
        secrets: Secrets,
    ) -> None:
        self.settings, self.number, self.listening, self.memory = settings, number, listening, memory
        self.app = App(settings, memory, secrets.token_bytes, number)
        self.tracer = _create_tracer(settings) if settings.trace_to else None
        self.state = ServerState()
        self.server: asyncio.AbstractServer | None = None
        self.grpc: Any = None
        self.worker_cache = _create_cache(settings, number, secrets.redis) if settings.cache_bytes else None
        self._closing: set[asyncio.Task[None]] = set()

    async def listen(self) -> None:
        """Start to accept connections."""
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
        GuardedProtocol.lag, GuardedProtocol.early_refusal = self.app.lag, EarlyRefusal(self.app, refused_late)
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
            os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # gRPC would log data from clients
            from edgekit.serve import grpc_app

            self.grpc = await grpc_app.listen(self.app, self.tracer)
        self.app.is_ready = True
        self._clock = asyncio.create_task(self._keep_time())

    async def _keep_time(self) -> None:
        """Update the `Date` header and the metrics of the cache once a second.

        RFC 9110 requires the header of servers that have a clock.
        """
        row = self.app.row
        row[FIELDS["cache_bytes"]] = row[FIELDS["cache_entries"]] = 0  # left by a worker that was killed
        while True:
            self.state.default_headers = [(b"date", formatdate(usegmt=True).encode())]
            if self.worker_cache is not None:
                store = self.worker_cache.store
                row[FIELDS["cache_bytes"]], row[FIELDS["cache_entries"]] = store.size_bytes, store.entries
            await asyncio.sleep(1)

    async def serve(self, entries: list[RepositoryEntry]) -> None:
        """Serve exactly these models. New models are opened beside the old ones, and then all names change at once."""
        app = self.app
        open_models = {served.bundle.identity: served for served in app.versions.values()}
        models: dict[str, ServedModel] = {}
        versions: dict[tuple[str, str], ServedModel] = {}
        for entry in entries:  # in ascending order of versions, so that a name refers to the highest
            served = open_models.get(entry.bundle.identity)
            if served is None or served.name != entry.names[0]:
                row = self.memory.row(self.number, entry.slot)
                row[FIELDS["pending"]] = 0  # left by a worker that was killed
                served = await asyncio.to_thread(_open, entry, self.settings, row)
                if self.worker_cache is not None:
                    await served.add_cache(self.worker_cache)
                    if self.number == 0 and served.cache is not None:
                        log(f"{served.name}: {served.cache.state}")
            for name in entry.names:
                models[name] = served
                versions[name, entry.bundle.version] = served
        app.slots = {entry.bundle.identity: entry.slot for entry in entries}
        app.models, app.versions = models, versions
        still_served = set(map(id, versions.values()))
        for served in open_models.values():
            if id(served) not in still_served:
                closing = asyncio.create_task(_close(served))
                self._closing.add(closing)
                closing.add_done_callback(self._closing.discard)

    async def drain(self) -> None:
        """Finish the requests before the process ends.

        The worker reports that it is not ready, but still answers for a while, and closes each connection after its
        answer. Then it stops accepting connections and waits for the open ones.
        """
        self.app.is_draining = True
        await asyncio.sleep(self.settings.drain_s)
        if self.server is not None:
            _drop_new_connections(self.listening)
            await asyncio.sleep(2 * IDLE_CHECK_S)  # meanwhile, connections with a complete handshake are accepted
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


def _create_tracer(settings: Settings) -> Tracer:
    from edgekit.serve.tracing import Tracer

    return Tracer(settings)


def _create_cache(settings: Settings, number: int, redis: str) -> WorkerCache:
    from edgekit.serve.cache import AnswerStore, WorkerCache

    shared = None
    if redis:
        from edgekit.serve.redis_cache import RedisCache

        shared = RedisCache(redis, is_logging=number == 0)
    return WorkerCache(AnswerStore(settings.cache_bytes, settings.cache_ttl_s), shared)


def _drop_new_connections(listening: socket.socket) -> None:
    """Make the kernel drop packets that would open a new connection.

    The request of a connection that is opened, but never accepted, would be lost. If the packet that opens a connection
    (SYN) is dropped, the client sends it again a second later, and is then refused.
    """
    if listening.family == socket.AF_UNIX:
        return
    # The position of the flags in a TCP header, and the flag that only the first packet of a client lacks.
    flags, is_ack = 13, 0x10
    instructions = ((0x30, 0, 0, flags), (0x45, 0, 1, is_ack), (0x06, 0, 0, 0xFFFFFFFF), (0x06, 0, 0, 0))
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *instruction) for instruction in instructions))
    with suppress(OSError):
        listening.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HP", 4, ctypes.addressof(program)))


def _open(entry: RepositoryEntry, settings: Settings, row: memoryview) -> ServedModel:
    with quiet_native():  # LiteRT writes a line about its delegate to stderr
        return ServedModel(entry.names[0], entry.bundle, settings, row)


async def _close(served: ServedModel) -> None:
    """Close a model once no request uses it and its last call, even one for a disconnected client, is finished."""
    while served.users or not served.batcher.is_idle:
        await asyncio.sleep(IDLE_CHECK_S)
    served.close()


async def run(worker: Worker, control: socket.socket) -> None:
    """Follow the supervisor's orders until it sends `drain` or ends."""
    asyncio.get_running_loop().set_exception_handler(unhandled)
    reader, writer = await asyncio.open_connection(sock=control, limit=1 << 26)

    def reply(**facts: Any) -> None:
        writer.write(json.dumps(facts).encode() + b"\n")

    is_listening, watch_task = False, None
    while line := await reader.readline():
        order = json.loads(line)
        if order["do"] == "drain":
            break
        if order["do"] == "show_verdicts":
            worker.app.verdicts = order["verdicts"]
            continue
        try:
            await worker.serve([RepositoryEntry.from_dict(each) for each in order["entries"]])
            if not is_listening:
                await worker.listen()
                is_listening = True
                if worker.settings.watch:
                    watch_task = asyncio.create_task(_watch(worker, writer))
        except Exception as error:  # reported to the supervisor, which decides what to do
            reply(number=order["number"], error=str(error) or type(error).__name__)
        else:
            reply(number=order["number"])
    if watch_task is not None:
        watch_task.cancel()
    await worker.drain()


async def _watch(worker: Worker, writer: asyncio.StreamWriter) -> None:
    """Examine samples of the served models in small steps, and send summaries of them to the supervisor."""
    from edgekit.serve.watch import watch

    def send(sketches: dict[str, Any]) -> None:
        if writer.transport.get_write_buffer_size() < MAX_UNREAD_BYTES:
            writer.write(orjson.dumps({"sketches": sketches}) + b"\n")

    await watch(
        lambda: [(each.bundle.identity, each.watcher) for each in worker.app.distinct() if each.watcher is not None],
        send,
    )


def main(arguments: list[str]) -> None:
    """Run a worker with the arguments NUMBER LISTENING CONTROL MEMORY SETTINGS; the last four are file descriptors."""
    number, listening_fd, control_fd, memory_fd, settings_fd = map(int, arguments)
    settings, secrets = read_handover(settings_fd)
    listening, control = socket.socket(fileno=listening_fd), socket.socket(fileno=control_fd)
    for each in (listening, control):
        each.setblocking(False)
    for signal_number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signal_number, signal.SIG_IGN)  # the supervisor decides when to stop
    hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (hard_limit, hard_limit)
    )  # the usual limit of 1024 is below the connection limit
    memory = SharedCounters(settings.workers, memory_fd)
    uvloop.run(run(Worker(settings, number, listening, memory, secrets), control))


if __name__ == "__main__":
    main(sys.argv[1:])
