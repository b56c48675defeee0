"""uvicorn's HTTP connection, extended by deadlines for receiving requests and by limits that apply before the app runs.

uvicorn never closes a connection whose client is silent, stalls, or does not complete a request (uvicorn#157). It also
closes a connection after the answer while the client is still sending. The system then resets the connection, and the
client loses the answer.
"""

from __future__ import annotations

import asyncio
import logging
import types
from collections.abc import Coroutine, Generator
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import unquote

import httptools
import orjson
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from edgekit.serve.load_shedding import ANSWER, EarlyRefusal, LoopLag

logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # one line per bad request could fill a disk
REFUSED_READ_S = 1.0
"""How long a connection is still read after it was refused because too many are open. Meanwhile it does not count as
open."""

NEW_CONNECTION_S = 1.0
"""How long a connection without a request may still send one while the server shuts down."""


class StopParsing(Exception):
    """Stops the parser after the last answer of a connection has been written."""


@dataclass(frozen=True)
class ConnectionLimits:
    """The limits of connections.

    `receive_s` is the longest time that a client may take to send a request, from its first byte or from the start of
    the connection. `header_bytes` is the largest size of the headers, and `connections` the largest number of open
    connections.
    """

    receive_s: float
    header_bytes: int
    connections: int


class GuardedProtocol(HttpToolsProtocol):
    """One connection. The class attributes are shared by all connections, and set before the process listens."""

    limits: ConnectionLimits
    lag = LoopLag()
    early_refusal: EarlyRefusal | None = None

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._deadline: asyncio.TimerHandle | None = None
        self._write_deadline: asyncio.TimerHandle | None = None
        self._is_receiving = False  # a request has begun and is not complete
        self._in_headers = False
        self._is_upgrading = False
        self._has_ignored_upgrade = False  # the data being read contained a request that offered another protocol
        self._has_ended = False  # the last answer has been written
        self._is_refusing = False  # the request being received will be refused once it is complete
        self._next_cycle: RequestResponseCycle | None = None  # the request to run once the parser has consumed its data
        self._requests_begun = 0  # number of requests that begin in the data being parsed
        self._data_bytes = 0  # size of the data being parsed
        self._bare_bytes = 0  # bytes since the request's first byte, or since the last piece of its body

    def connection_made(self, transport: Any) -> None:
        """Refuse the connection if too many are open; otherwise expect a request."""
        super().connection_made(transport)
        self._buffered = BufferedTransport(self)
        if len(self.connections) > self.limits.connections:
            self.connections.discard(self)
            reason = f"{self.limits.connections} connections are open, which is the limit"
            self._refuse(503, reason, b"retry-after: 1\r\n", REFUSED_READ_S)
            return
        self._start_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        """See uvicorn."""
        self._buffered.forget()
        self._stop_deadline()
        self.resume_writing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse the data. If a request is still incomplete afterwards, its deadline starts or continues."""
        self._has_ignored_upgrade = False
        self._receive(data)

    def _receive(self, data: bytes) -> None:
        if self._has_ended:
            return
        self.lag.note_read(self.loop)
        self._stop_keep_alive_timer()
        was_receiving, self._requests_begun, self._data_bytes = self._is_receiving, 0, len(data)
        self._bare_bytes += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            # `_answer_without_upgrade` calls this method again. No real client offers another protocol in several
            # requests in a row, and each of them would make the recursion deeper.
            if self._has_ignored_upgrade:
                self._refuse(400, "several requests in a row offer another protocol; wait for the first answer")
            else:
                self._answer_without_upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserError:
            self._refuse(400, "not an HTTP request")
        self._start_next()
        if self._has_ended or self.transport.is_closing():
            return
        if self._is_receiving:
            # Bytes can be counted only if the new request begins at the start of the data. If other data precedes it,
            # the position of its first byte is not known.
            if self._requests_begun:
                self._bare_bytes = (
                    len(data) if self._requests_begun == 1 and not was_receiving and self._in_headers else 0
                )
            if self._bare_bytes > self.limits.header_bytes:
                self._refuse(431, f"the headers are longer than {self.limits.header_bytes} bytes")
                return
        idle = self.cycle is None or self.cycle.response_complete
        if self._is_receiving or (idle and self.timeout_keep_alive_task is None):
            self._start_deadline()
        else:
            self._stop_deadline()

    def _start_next(self) -> None:
        """Run the first of several pipelined requests at once; the others run as tasks."""
        if self._next_cycle is None:
            return
        cycle, self._next_cycle = self._next_cycle, None
        task = start_eagerly(cycle.run_asgi(self.app), self.loop)
        if task is not None:
            self._keep_task(task)

    def _keep_task(self, task: asyncio.Task[None]) -> None:
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def _answer_without_upgrade(self, remaining_data: bytes) -> None:
        """Answer in HTTP/1.1 although the request offers another protocol, as Java's client does with HTTP/2."""
        self._is_upgrading, self._has_ignored_upgrade = False, True
        head = [b"%s %s HTTP/1.1" % (self._method, self.url)]
        head += [b"%s: %s" % each for each in self.headers if each[0] not in (b"upgrade", b"http2-settings")]
        self.parser = httptools.HttpRequestParser(self)
        self._receive(b"\r\n".join((*head, b"", remaining_data)))

    def on_message_begin(self) -> None:
        """Note that a request begins."""
        self._is_receiving = self._in_headers = True
        self._requests_begun += 1
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Check the headers and create the request.

        An answer that is sent before the body is complete closes the connection.
        """
        if self._data_bytes > self.limits.header_bytes:
            self._check_headers()
        self._in_headers = False
        self._bare_bytes = 0
        if self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT":
            self._is_upgrading, self._method = True, self.parser.get_method()
            return
        if self._is_late():
            self._is_refusing = True
            return
        self._make_cycle()

    def _make_cycle(self) -> None:
        """Create the request as uvicorn does, but let it write to the buffered transport.

        The request runs once the parser has consumed its data.
        """
        url, version = httptools.parse_url(self.url), self.parser.get_http_version()
        path = url.path.decode("ascii")
        self.scope["method"] = self.parser.get_method().decode("ascii")
        self.scope["http_version"] = version
        self.scope["path"] = unquote(path) if "%" in path else path
        self.scope["raw_path"] = url.path
        self.scope["query_string"] = url.query or b""
        previous, self._keep_alive = self.cycle, version != "1.0" and self.parser.should_keep_alive()
        self.cycle = RequestResponseCycle(
            scope=self.scope,
            transport=self._buffered,  # type: ignore[arg-type]  # has the methods that an answer needs
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=self.access_log,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=self.expect_100_continue,
            keep_alive=False,
            on_response=self.on_response_complete,
        )
        if previous is None or previous.response_complete:
            self._next_cycle = self.cycle
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((self.cycle, self.app))

    def _is_late(self) -> bool:
        """Return whether to refuse the request before the app sees it. Unusual requests are left to the app."""
        if self.early_refusal is None or not self.lag.is_long or self._next_cycle is not None:
            return False
        parser, is_alone = self.parser, self.cycle is None or self.cycle.response_complete
        is_usual = parser.get_method() == b"POST" and parser.should_keep_alive() and parser.get_http_version() == "1.1"
        is_plain = is_usual and not self.expect_100_continue and not self.flow.write_paused
        return is_alone and is_plain and self.early_refusal.is_late(self.url, self.headers)

    def _check_headers(self) -> None:
        total = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        if total > self.limits.header_bytes:
            self._refuse(431, f"the headers are longer than {self.limits.header_bytes} bytes")
            raise StopParsing

    def on_body(self, body: bytes) -> None:
        """Pass on a piece of the body."""
        self._bare_bytes = 0
        if not self._is_upgrading and not self._is_refusing:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """Note that the request is complete."""
        if self._is_upgrading:
            return
        self._is_receiving = False
        if self._is_refusing:
            self._is_refusing = False
            self._refuse_late()
            return
        if not self.cycle.response_started:
            self.cycle.keep_alive = self._keep_alive
        super().on_message_complete()

    def _refuse_late(self) -> None:
        """Refuse a late request. The connection stays open, unless the server shuts down."""
        is_last = self.early_refusal is not None and self.early_refusal.is_ending
        head = b"".join(b"%b: %b\r\n" % each for each in self.server_state.default_headers)
        close = b"connection: close\r\n" if is_last else b""
        self.transport.write(b"".join((STATUS_LINE[503], head, close, ANSWER)))
        if is_last:
            self.close()
            raise StopParsing  # later requests are not answered
        self._start_keep_alive_timer()

    def on_response_complete(self) -> None:
        """Send the end of an answer, and start the next pipelined request."""
        self._buffered.flush()
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._stop_keep_alive_timer()
            cycle, app = self.pipeline.pop()
            self._keep_task(self.loop.create_task(cycle.run_asgi(app)))
        else:
            self._start_keep_alive_timer()

    def _start_keep_alive_timer(self) -> None:
        self._stop_keep_alive_timer()
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def _stop_keep_alive_timer(self) -> None:
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()
            self.timeout_keep_alive_task = None

    def close(self) -> None:
        """Close the connection after the last answer."""
        if self._has_ended or self.transport.is_closing():
            return
        if self._is_receiving or self.pipeline:
            self._linger(self.limits.receive_s)
        else:
            self._close_gracefully()

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection. A request that has begun has a deadline of its own."""
        if not (self._is_receiving or self.transport.is_closing()):
            self._close_gracefully()

    def shutdown(self) -> None:
        """Close the connection after its current request, or at once if there is none.

        A connection that has not sent a request yet gets a little more time, because its request may be on the way.
        """
        if self._has_ended or self._is_receiving:
            return
        if self.cycle is None:
            self._stop_deadline()
            self._deadline = self.loop.call_later(min(NEW_CONNECTION_S, self.limits.receive_s), self._deadline_passed)
        else:
            super().shutdown()

    def pause_writing(self) -> None:
        """Note that the client does not read the answer, and abort the connection if it does not read for too long."""
        super().pause_writing()
        if self._write_deadline is None:
            self._write_deadline = self.loop.call_later(self.limits.receive_s, self._abort)

    def resume_writing(self) -> None:
        """Note that the client reads again."""
        super().resume_writing()
        if self._write_deadline is not None:
            self._write_deadline.cancel()
            self._write_deadline = None

    def _abort(self) -> None:
        self._write_deadline = None
        self._buffered.forget()
        self.transport.abort()

    def _start_deadline(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(self.limits.receive_s, self._deadline_passed)

    def _stop_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _deadline_passed(self) -> None:
        self._deadline = None
        if self._has_ended or self.transport.is_closing():
            self.transport.abort()
            return
        if self.flow.read_paused:  # the server itself has paused reading, so the client is not late
            self._start_deadline()
            return
        answering = self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete
        if not self._is_receiving or answering or self.pipeline:
            self._close_gracefully()
            return
        self._refuse(408, f"the request was not complete after {self.limits.receive_s:g} s")

    def _close_gracefully(self) -> None:
        """Close the connection once everything is written, or after `receive_s` in any case.

        A client that never reads would otherwise keep it open.
        """
        self._stop_deadline()
        self.transport.close()
        self._deadline = self.loop.call_later(self.limits.receive_s, self._deadline_passed)

    def _refuse(self, status: int, reason: str, more_headers: bytes = b"", linger_s: float = 0.0) -> None:
        if self._has_ended or self.transport.is_closing():
            return
        body = orjson.dumps({"error": reason})
        length = b"content-length: %d\r\n" % len(body)
        head = (
            STATUS_LINE[status],
            b"content-type: application/json\r\n",
            length,
            more_headers,
            b"connection: close\r\n\r\n",
        )
        is_waiting = self.cycle is not None and not self.cycle.response_complete
        is_counted_elsewhere = self._is_refusing or (is_waiting and self.cycle.more_body)
        if self.early_refusal and not is_counted_elsewhere:
            self.early_refusal.count_refusal(status, reason)
        if is_waiting:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.write(b"".join((*head, body)))
        self._linger(linger_s or self.limits.receive_s)

    def _linger(self, limit_s: float) -> None:
        """Close the sending side, and discard what arrives until the client closes, at most for `limit_s`."""
        self._has_ended = True
        self._buffered.forget()  # requests that are still running must not write any more
        self._stop_deadline()
        self._stop_keep_alive_timer()
        if not self.transport.can_write_eof():  # TLS
            self.transport.close()
            return
        self.flow.resume_reading()
        self.transport.write_eof()
        self._deadline = self.loop.call_later(limit_s, self._deadline_passed)


STATUS, CONTINUE = b"HTTP/1.1 ", b"HTTP/1.1 100 "


class Connection(Protocol):
    """The part of a connection that `BufferedTransport` uses."""

    transport: asyncio.Transport

    def close(self) -> None:
        """Close the connection after the last answer."""


class BufferedTransport:
    """Sends the headers and body of an answer in one piece, and leaves closing to the connection.

    uvicorn writes the headers and the body separately, which would make two packets.
    """

    __slots__ = ("_connection", "_head", "_write", "is_closing")

    def __init__(self, connection: Connection) -> None:
        self._connection: Connection | None = connection
        self._write = connection.transport.write
        self._head = b""
        self.is_closing = connection.transport.is_closing

    def write(self, data: bytes) -> None:
        """Write data. The headers of an answer are held back until its body follows."""
        if self._connection is None:
            return
        if self._head:
            data, self._head = self._head + data, b""
        elif data.startswith(STATUS) and not data.startswith(CONTINUE):
            self._head = data
            return
        self._write(data)

    def flush(self) -> None:
        """Send headers that are held back, because the answer (to a HEAD request) has no body."""
        if self._head:
            self.write(b"")

    def close(self) -> None:
        """Close the connection after the answer."""
        self.flush()
        if self._connection is not None:
            self._connection.close()

    def forget(self) -> None:
        """Discard all further writes, because the connection is lost.

        If several requests are pipelined, uvicorn tells only the newest that the connection is lost, so the others
        would continue to write.
        """
        self._connection, self._head = None, b""


def start_eagerly(coroutine: Coroutine[Any, Any, None], loop: asyncio.AbstractEventLoop) -> asyncio.Task[None] | None:
    """Run a coroutine up to its first await. Returns the task that continues it, or None if it has finished."""
    try:
        waits_for = coroutine.send(None)
    except StopIteration:
        return None
    return loop.create_task(_continue(coroutine, waits_for))


async def _continue(coroutine: Coroutine[Any, Any, None], waits_for: Any) -> None:
    await _drive(coroutine, waits_for)


@types.coroutine
def _drive(coroutine: Coroutine[Any, Any, None], waits_for: Any) -> Generator[Any, Any, None]:
    """Drive a coroutine that has been started: await each object that it waits for, and send it the result."""
    while True:
        error: BaseException | None = None
        value = None
        try:
            value = yield waits_for
        except BaseException as thrown:  # mostly a cancellation, which the coroutine itself must handle
            error = thrown
        try:
            waits_for = coroutine.send(value) if error is None else coroutine.throw(error)
        except StopIteration:
            return
