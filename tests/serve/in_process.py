"""A worker's application within the test's own process: requests whose body comes when the test says so."""

from __future__ import annotations

import asyncio
import dataclasses
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgekit.device.commands.serve import Settings
from edgekit.serve.counters import SharedCounters
from edgekit.serve.handover import Secrets
from edgekit.serve.repository import RepositoryEntry, assign_names, validate
from edgekit.serve.worker import Worker
from tests.serve.server import Reply


def entry(path: Path, one_ms: float, **changes: Any) -> RepositoryEntry:
    """A bundle that was validated here, as if one of its samples took `one_ms`."""
    bundle = dataclasses.replace(validate(str(path), 1, None), ms={1: one_ms}, refused={}, **changes)
    return assign_names([bundle], {})[0]


def worker(**settings: Any) -> Worker:
    """One that listens nowhere."""
    return Worker(Settings((), **settings), 0, socket.socket(), SharedCounters(1), Secrets())


async def exchanged(one: Worker, data: bytes, limit_s: float = 10.0) -> bytes:
    """What a connection brings back for bytes, until the server closes it; the worker listens from the first on."""
    if one.server is None:
        one.listening.bind(("127.0.0.1", 0))
        one.listening.listen()
        one.listening.setblocking(False)
        await one.listen()
    reader, writer = await asyncio.open_connection(*one.listening.getsockname())
    writer.write(data)
    found = await asyncio.wait_for(reader.read(), limit_s)
    writer.close()
    return found


class PendingRequest:
    """A request: its body comes by `send`, its answer is `reply`, None where nothing came."""

    def __init__(
        self, one: Worker, path: str, headers: Mapping[str, str] | None = None, method: str = "POST", query: str = ""
    ) -> None:
        self._pieces: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._messages: list[dict[str, Any]] = []
        scope = {
            "type": "http", "path": path, "method": method, "query_string": query.encode(), "http_version": "1.1",
            "headers": [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()],
        }  # fmt: skip
        self.task = asyncio.ensure_future(one.app(scope, self._pieces.get, self._collect))

    async def _collect(self, message: dict[str, Any]) -> None:
        self._messages.append(message)

    def send(self, body: bytes, more: bool = False) -> None:
        """A piece of the body, by default the last."""
        self._pieces.put_nowait({"type": "http.request", "body": body, "more_body": more})

    def gone(self) -> None:
        """The client hangs up."""
        self._pieces.put_nowait({"type": "http.disconnect"})

    async def reply(self, limit_s: float = 10.0) -> Reply:
        """The answer, whole."""
        await asyncio.wait_for(self.task, limit_s)
        start, end = self._messages
        headers = {name.decode(): value.decode() for name, value in start["headers"]}
        return Reply(start["status"], headers, end["body"])
