"""A connection's transport as an answer sees it."""

from __future__ import annotations

import asyncio
from typing import Protocol

STATUS, CONTINUE = b"HTTP/1.1 ", b"HTTP/1.1 100 "


class Connection(Protocol):
    """What is asked of the connection itself."""

    transport: asyncio.Transport

    def close(self) -> None:
        """Behind the last answer."""


class Closing:
    """Sends head and body as one; closing takes in first what the client still sends.

    uvicorn writes the head of an answer and then its body, which would be two packets.
    """

    __slots__ = ("_connection", "_head", "_write", "is_closing")

    def __init__(self, connection: Connection) -> None:
        self._connection: Connection | None = connection
        self._write = connection.transport.write
        self._head = b""
        self.is_closing = connection.transport.is_closing

    def write(self, data: bytes) -> None:
        """A head waits for its body."""
        if self._connection is None:
            return
        if self._head:
            data, self._head = self._head + data, b""
        elif data.startswith(STATUS) and not data.startswith(CONTINUE):
            self._head = data
            return
        self._write(data)

    def flush(self) -> None:
        """The answer is whole; that to HEAD has no body."""
        if self._head:
            self.write(b"")

    def close(self) -> None:
        """Behind the answer."""
        self.flush()
        if self._connection is not None:
            self._connection.close()

    def forget(self) -> None:
        """The connection is gone; uvicorn tells the newest of several pipelined requests alone."""
        self._connection, self._head = None, b""
