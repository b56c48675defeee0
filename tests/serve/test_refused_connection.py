"""A connection whose requests were refused by their headers goes on like any other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import uvloop
from uvicorn.config import Config
from uvicorn.server import ServerState

from edgekit.serve.connection import ConnectionLimits, GuardedProtocol

KEEP_ALIVE_S = 1
REQUEST = b"POST /%b HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nab"


class LateProtocol(GuardedProtocol):
    """Refuses requests to /late."""

    limits = ConnectionLimits(5.0, 1 << 16, 10)

    def _is_late(self) -> bool:
        return self.url == b"/late" and not self.flow.write_paused


async def app(scope: Any, receive: Any, send: Callable[[Any], Awaitable[None]]) -> None:
    """Answers at once."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


def connected(ask: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]) -> None:
    """Run `ask` with a connection to such a server."""

    async def main() -> None:
        config = Config(app, ws="none", lifespan="off", log_config=None, timeout_keep_alive=KEEP_ALIVE_S)
        config.load()
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            lambda: LateProtocol(config=config, server_state=ServerState(), app_state={}), "127.0.0.1", 0
        )
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        await ask(reader, writer)
        writer.close()
        server.close()

    uvloop.run(main())


async def status(reader: asyncio.StreamReader) -> int:
    """Of the next answer, read whole."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(int(line[16:]) for line in head.split(b"\r\n") if line.startswith(b"content-length: "))
    await reader.readexactly(length)
    return int(head[9:12])


def test_answers_and_refusals_come_in_the_order_of_the_requests() -> None:
    async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"".join(REQUEST % path for path in (b"late", b"late", b"now")))
        assert [await status(reader) for _ in range(3)] == [503, 503, 200]
        writer.write(REQUEST % b"now")
        assert await status(reader) == 200

    connected(ask)


def test_refusals_of_one_packet_do_not_close_the_connection_under_later_requests() -> None:
    """Each begins the wait for the next request; only the last of them may."""

    async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(3 * (REQUEST % b"late"))
        assert [await status(reader) for _ in range(3)] == [503] * 3
        loop = asyncio.get_running_loop()
        until = loop.time() + 2.5 * KEEP_ALIVE_S
        while loop.time() < until:
            writer.write(REQUEST % b"now")
            assert await status(reader) == 200
            await asyncio.sleep(0.05)

    connected(ask)


def test_a_connection_that_asks_nothing_after_a_refusal_is_closed() -> None:
    async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(REQUEST % b"late")
        assert await status(reader) == 503
        assert await asyncio.wait_for(reader.read(), 20 * KEEP_ALIVE_S) == b""

    connected(ask)


def test_a_body_that_comes_late_is_awaited_and_one_that_never_comes_gets_408() -> None:
    async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(REQUEST[:-1] % b"late")
        await asyncio.sleep(0.1)
        writer.write(b"b" + REQUEST[:-1] % b"late")
        assert await status(reader) == 503
        assert await asyncio.wait_for(status(reader), 60) == 408

    connected(ask)
