"""uvicorn's HTTP connection with what it lacks: a deadline for receiving a request, and bounds before the app sees it.

uvicorn keeps silent, half-headed and stalled connections open for ever (uvicorn#157). It also closes behind an answer
while the client still sends: the system then resets the connection, and the client loses the answer.
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

logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # a line for each bad request could fill a disk
REFUSED_S = 1.0
"""How long a connection too many is read after its refusal; it does not count among those that are open."""

FRESH_S = 1.0
"""How long a connection that was just made may still bring its request while the server ends."""


class TooLong(Exception):
    """Stops the parser; a refusal is the connection's last answer."""


@dataclass(frozen=True)
class ConnectionLimits:
    """Of one connection. `receive_s` holds from a request's first byte, or the connection's, to its last."""

    receive_s: float
    header_bytes: int
    connections: int


class GuardedProtocol(HttpToolsProtocol):
    """One connection. What it shares with all others is set before the process listens."""

    limits: ConnectionLimits
    lag = LoopLag()
    early: EarlyRefusal | None = None

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._deadline: asyncio.TimerHandle | None = None
        self._stuck: asyncio.TimerHandle | None = None
        self._receiving = False  # a request has begun and is not whole
        self._in_headers = False
        self._upgrading = False
        self._has_stayed = False  # a request among the data that are read now offered another protocol
        self._ended = False  # the last answer is written
        self._refusing = False  # the request that is being received is refused once it is whole
        self._next: RequestResponseCycle | None = None  # what runs once the parser has no data any more
        self._begun = self._size = 0  # of the data that the parser has now: requests that begin in it, its bytes
        self._bare_bytes = 0  # since the request's first byte, or the last of its body

    def connection_made(self, transport: Any) -> None:
        """Refuse one too many; expect a request soon."""
        super().connection_made(transport)
        self._closing = BufferedTransport(self)
        if len(self.connections) > self.limits.connections:
            self.connections.discard(self)
            reason = f"{self.limits.connections} connections are open, that is the limit"
            self._refuse(503, reason, b"retry-after: 1\r\n", REFUSED_S)
            return
        self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        """See uvicorn."""
        self._closing.forget()
        self._relax()
        self.resume_writing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Feed the parser; a request that is not whole must be so before the deadline."""
        self._has_stayed = False
        self._receive(data)

    def _receive(self, data: bytes) -> None:
        if self._ended:
            return
        self.lag.note_read(self.loop)
        self._stop_keep_alive_timer()
        was_receiving, self._begun, self._size = self._receiving, 0, len(data)
        self._bare_bytes += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if self._has_stayed:  # no client does that, and each would be a call within the one before it
                self._refuse(400, "several requests in a row offer another protocol; wait for the first answer")
            else:
                self._stay(data[upgrade.args[0] :])
        except httptools.HttpParserError:
            self._refuse(400, "not an HTTP request")
        self._start()
        if self._ended or self.transport.is_closing():
            return
        if self._receiving:
            if self._begun:  # where it began is not known, if something was before it
                self._bare_bytes = len(data) if self._begun == 1 and not was_receiving and self._in_headers else 0
            if self._bare_bytes > self.limits.header_bytes:
                self._refuse(431, f"the headers are longer than {self.limits.header_bytes} bytes")
                return
        idle = self.cycle is None or self.cycle.response_complete
        if self._receiving or (idle and self.timeout_keep_alive_task is None):
            self._expect()
        else:
            self._relax()

    def _start(self) -> None:
        """Of several pipelined requests the first runs at once, each other one as a task."""
        if self._next is None:
            return
        cycle, self._next = self._next, None
        task = start_eagerly(cycle.run_asgi(self.app), self.loop)
        if task is not None:
            self._keep_task(task)

    def _keep_task(self, task: asyncio.Task[None]) -> None:
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def _stay(self, rest: bytes) -> None:
        """Answer a request that offers another protocol in this one; Java's client offers HTTP/2 with every request."""
        self._upgrading, self._has_stayed = False, True
        head = [b"%s %s HTTP/1.1" % (self._method, self.url)]
        head += [b"%s: %s" % each for each in self.headers if each[0] not in (b"upgrade", b"http2-settings")]
        self.parser = httptools.HttpRequestParser(self)
        self._receive(b"\r\n".join((*head, b"", rest)))

    def on_message_begin(self) -> None:
        """A request's first byte."""
        self._receiving = self._in_headers = True
        self._begun += 1
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Its headers are whole. Until the rest is, its answer is the connection's last."""
        if self._size > self.limits.header_bytes:
            self._check_headers()
        self._in_headers = False
        self._bare_bytes = 0
        if self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT":
            self._upgrading, self._method = True, self.parser.get_method()
            return
        if self._is_late():
            self._refusing = True
            return
        self._make_cycle()

    def _make_cycle(self) -> None:
        """As uvicorn does; the cycle writes by the buffered transport, and runs when the parser is done."""
        url, version = httptools.parse_url(self.url), self.parser.get_http_version()
        path = url.path.decode("ascii")
        self.scope["method"] = self.parser.get_method().decode("ascii")
        self.scope["http_version"] = version
        self.scope["path"] = unquote(path) if "%" in path else path
        self.scope["raw_path"] = url.path
        self.scope["query_string"] = url.query or b""
        before, self._keep_alive = self.cycle, version != "1.0" and self.parser.should_keep_alive()
        self.cycle = RequestResponseCycle(
            scope=self.scope,
            transport=self._closing,  # type: ignore[arg-type]  # what an answer needs of one
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
        if before is None or before.response_complete:
            self._next = self.cycle
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((self.cycle, self.app))

    def _is_late(self) -> bool:
        """Whether it is refused before the app sees it; what is unusual about a request is the app's business."""
        if self.early is None or not self.lag.is_long or self._next is not None:
            return False
        parser, is_alone = self.parser, self.cycle is None or self.cycle.response_complete
        is_usual = parser.get_method() == b"POST" and parser.should_keep_alive() and parser.get_http_version() == "1.1"
        is_plain = is_usual and not self.expect_100_continue and not self.flow.write_paused
        return is_alone and is_plain and self.early.is_late(self.url, self.headers)

    def _check_headers(self) -> None:
        total = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        if total > self.limits.header_bytes:
            self._refuse(431, f"the headers are longer than {self.limits.header_bytes} bytes")
            raise TooLong

    def on_body(self, body: bytes) -> None:
        """A piece of its body."""
        self._bare_bytes = 0
        if not self._upgrading and not self._refusing:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """It is whole."""
        if self._upgrading:
            return
        self._receiving = False
        if self._refusing:
            self._refusing = False
            self._answer_late()
            return
        if not self.cycle.response_started:
            self.cycle.keep_alive = self._keep_alive
        super().on_message_complete()

    def _answer_late(self) -> None:
        """The refusal; the connection stays, unless the server stops."""
        is_last = self.early is not None and self.early.is_ending
        head = b"".join(b"%b: %b\r\n" % each for each in self.server_state.default_headers)
        close = b"connection: close\r\n" if is_last else b""
        self.transport.write(b"".join((STATUS_LINE[503], head, close, ANSWER)))
        if is_last:
            self.close()
            raise TooLong  # what comes behind it is not answered
        self._start_keep_alive_timer()

    def on_response_complete(self) -> None:
        """An answer is whole."""
        self._closing.flush()
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
        """Behind the last answer."""
        if self._ended or self.transport.is_closing():
            return
        if self._receiving or self.pipeline:
            self._linger(self.limits.receive_s)
        else:
            self._leave()

    def timeout_keep_alive_handler(self) -> None:
        """No other request came; one that has begun has a deadline of its own."""
        if not (self._receiving or self.transport.is_closing()):
            self._leave()

    def shutdown(self) -> None:
        """Close behind the request that is under way, at once where there is none. A new connection brings one soon."""
        if self._ended or self._receiving:
            return
        if self.cycle is None:
            self._relax()
            self._deadline = self.loop.call_later(min(FRESH_S, self.limits.receive_s), self._too_late)
        else:
            super().shutdown()

    def pause_writing(self) -> None:
        """The client takes nothing; it is let go where that lasts."""
        super().pause_writing()
        if self._stuck is None:
            self._stuck = self.loop.call_later(self.limits.receive_s, self._abort)

    def resume_writing(self) -> None:
        """It takes something again."""
        super().resume_writing()
        if self._stuck is not None:
            self._stuck.cancel()
            self._stuck = None

    def _abort(self) -> None:
        self._stuck = None
        self._closing.forget()
        self.transport.abort()

    def _expect(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(self.limits.receive_s, self._too_late)

    def _relax(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_late(self) -> None:
        self._deadline = None
        if self._ended or self.transport.is_closing():
            self.transport.abort()
            return
        if self.flow.read_paused:  # it is this side that does not read
            self._expect()
            return
        answering = self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete
        if not self._receiving or answering or self.pipeline:
            self._leave()
            return
        self._refuse(408, f"the request was not whole after {self.limits.receive_s:g} s")

    def _leave(self) -> None:
        """Close behind what is written. A client that takes none of it would hold the connection for ever."""
        self._relax()
        self.transport.close()
        self._deadline = self.loop.call_later(self.limits.receive_s, self._too_late)

    def _refuse(self, status: int, reason: str, more: bytes = b"", linger_s: float = 0.0) -> None:
        if self._ended or self.transport.is_closing():
            return
        body = orjson.dumps({"error": reason})
        length = b"content-length: %d\r\n" % len(body)
        head = (STATUS_LINE[status], b"content-type: application/json\r\n", length, more, b"connection: close\r\n\r\n")
        is_waiting = self.cycle is not None and not self.cycle.response_complete
        if self.early and not self._refusing and not (is_waiting and self.cycle.more_body):  # which count elsewhere
            self.early.refused(status, reason)
        if is_waiting:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.write(b"".join((*head, body)))
        self._linger(linger_s or self.limits.receive_s)

    def _linger(self, limit_s: float) -> None:
        """Close this side, and read without looking until the other side does, or a while is over."""
        self._ended = True
        self._closing.forget()  # a request that is answered or told to go on later must not write behind the end
        self._relax()
        self._stop_keep_alive_timer()
        if not self.transport.can_write_eof():  # TLS
            self.transport.close()
            return
        self.flow.resume_reading()
        self.transport.write_eof()
        self._deadline = self.loop.call_later(limit_s, self._too_late)


STATUS, CONTINUE = b"HTTP/1.1 ", b"HTTP/1.1 100 "


class Connection(Protocol):
    """What is asked of the connection itself."""

    transport: asyncio.Transport

    def close(self) -> None:
        """Behind the last answer."""


class BufferedTransport:
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


def start_eagerly(coroutine: Coroutine[Any, Any, None], loop: asyncio.AbstractEventLoop) -> asyncio.Task[None] | None:
    """Run `coroutine` up to its first wait; the task that goes on from there, None where it has ended."""
    try:
        waits_for = coroutine.send(None)
    except StopIteration:
        return None
    return loop.create_task(_go_on(coroutine, waits_for))


async def _go_on(coroutine: Coroutine[Any, Any, None], waits_for: Any) -> None:
    await _rest(coroutine, waits_for)


@types.coroutine
def _rest(coroutine: Coroutine[Any, Any, None], waits_for: Any) -> Generator[Any, Any, None]:
    """Hand what the coroutine waits for to the task, and what the task gets to the coroutine."""
    while True:
        error: BaseException | None = None
        value = None
        try:
            value = yield waits_for
        except BaseException as thrown:  # a cancellation above all: it is the coroutine's to answer
            error = thrown
        try:
            waits_for = coroutine.send(value) if error is None else coroutine.throw(error)
        except StopIteration:
            return
