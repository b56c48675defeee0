"""uvicorn's HTTP connection with what it lacks: a deadline for receiving a request, and bounds before the app sees it.

uvicorn keeps silent, half-headed and stalled connections open for ever (uvicorn#157).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import orjson
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol


@dataclass(frozen=True)
class Limits:
    """Of one connection. `receive_s` holds from a request's first byte, or the connection's, to its last."""

    receive_s: float
    header_bytes: int
    connections: int


class GuardedProtocol(HttpToolsProtocol):
    """One connection. `limits` is set by the worker before it listens."""

    limits: Limits

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._deadline: asyncio.TimerHandle | None = None
        self._receiving = False
        self._in_headers = True
        self._header_bytes = 0

    def connection_made(self, transport: Any) -> None:
        """Refuse one too many; expect a request soon."""
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections:
            self._refuse(
                503, f"{self.limits.connections} connections are open, that is the limit", b"retry-after: 1\r\n"
            )
            return
        self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        """See uvicorn."""
        self._relax()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Feed the parser; a request that is not whole must be so before the deadline."""
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._in_headers:
            self._header_bytes += len(data)
            if self._header_bytes > self.limits.header_bytes:
                self._refuse(431, f"the headers are longer than {self.limits.header_bytes} bytes")
                return
        idle = self.cycle is None or self.cycle.response_complete
        if self._receiving or (idle and self.timeout_keep_alive_task is None):
            self._expect()
        else:
            self._relax()

    def on_message_begin(self) -> None:
        """A request's first byte."""
        self._receiving = self._in_headers = True
        self._header_bytes = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Its headers are whole."""
        self._in_headers = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """It is whole."""
        self._receiving = False
        self._in_headers, self._header_bytes = True, 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """See uvicorn; a request whose rest nobody will read cannot be followed by another."""
        if self._receiving and not self.transport.is_closing():
            self.transport.close()
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """What the parser refuses, in JSON."""
        self._refuse(400, "not an HTTP request")

    def _expect(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(self.limits.receive_s, self._too_late)

    def _relax(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_late(self) -> None:
        self._deadline = None
        if self.transport.is_closing():
            return
        if self.flow.read_paused:  # it is this side that does not read
            self._expect()
            return
        answering = self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete
        if not self._receiving or answering or self.pipeline:
            self.transport.close()
            return
        self._refuse(408, f"the request was not whole after {self.limits.receive_s:g} s")

    def _refuse(self, status: int, reason: str, more: bytes = b"") -> None:
        self._relax()
        body = orjson.dumps({"error": reason})
        length = b"content-length: %d\r\n" % len(body)
        head = (STATUS_LINE[status], b"content-type: application/json\r\n", length, more, b"connection: close\r\n\r\n")
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.write(b"".join((*head, body)))
        self.transport.close()
