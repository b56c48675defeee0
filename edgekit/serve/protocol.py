"""uvicorn's HTTP connection with what it lacks: a deadline for receiving a request, and bounds before the app sees it.

uvicorn keeps silent, half-headed and stalled connections open for ever (uvicorn#157). It also closes behind an answer
while the client still sends: the system then resets the connection, and the client loses the answer.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import httptools
import orjson
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from edgekit.serve import eager
from edgekit.serve.admission import ANSWER, Admission
from edgekit.serve.closing import Closing
from edgekit.serve.limits import Limits
from edgekit.serve.turn import Turn

logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # a line for each bad request could fill a disk
REFUSED_S = 1.0
"""How long a connection too many is read after its refusal; it does not count among those that are open."""

FRESH_S = 1.0
"""How long a connection that was just made may still bring its request while the server ends."""


class TooLong(Exception):
    """Stops the parser; a refusal is the connection's last answer."""


class GuardedProtocol(HttpToolsProtocol):
    """One connection. What it shares with all others is set before the process listens."""

    limits: Limits
    turn = Turn()
    admission: Admission | None = None

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
        self._feeding = False  # the parser has data
        self._starts: tuple[RequestResponseCycle, Any] | None = None  # what runs once it has none any more
        self._begun = self._size = 0  # of the data that the parser has now: requests that begin in it, its bytes
        self._bare_bytes = 0  # since the request's first byte, or the last of its body

    def connection_made(self, transport: Any) -> None:
        """Refuse one too many; expect a request soon."""
        super().connection_made(transport)
        self._closing = Closing(self)
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
        self.turn.reads(self.loop)
        self._unset_keepalive_if_required()
        was_receiving, self._begun, self._size = self._receiving, 0, len(data)
        self._bare_bytes += len(data)
        self._feeding = True
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if self._has_stayed:  # no client does that, and each would be a call within the one before it
                self._refuse(400, "several requests in a row offer another protocol; wait for the first answer")
            else:
                self._stay(data[upgrade.args[0] :])
        except httptools.HttpParserError:
            self._refuse(400, "not an HTTP request")
        finally:
            self._feeding = False
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

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Not within the parser; of several pipelined requests the first runs at once, each other one as a task."""
        if self._feeding:
            self._starts = (cycle, app)
        else:
            super()._start_asgi_task(cycle, app)

    def _start(self) -> None:
        if self._starts is None:
            return
        (cycle, app), self._starts = self._starts, None
        task = eager.start(cycle.run_asgi(app), self.loop)
        if task is not None:
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
        super().on_headers_complete()
        self._keep_alive, self.cycle.keep_alive = self.cycle.keep_alive, False
        self.cycle.transport = self._closing  # type: ignore[assignment]  # what an answer needs of one

    def _is_late(self) -> bool:
        """Whether it is refused before the app sees it; what is unusual about a request is the app's business."""
        if self.admission is None or not self.turn.is_long or self._starts is not None:
            return False
        parser, is_alone = self.parser, self.cycle is None or self.cycle.response_complete
        is_usual = parser.get_method() == b"POST" and parser.should_keep_alive() and parser.get_http_version() == "1.1"
        is_plain = is_usual and not self.expect_100_continue and not self.flow.write_paused
        return is_alone and is_plain and self.admission.is_late(self.url, self.headers)

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
        is_last = self.admission is not None and self.admission.is_ending
        head = b"".join(b"%b: %b\r\n" % each for each in self.server_state.default_headers)
        close = b"connection: close\r\n" if is_last else b""
        self.transport.write(b"".join((STATUS_LINE[503], head, close, ANSWER)))
        if is_last:
            self.close()
            raise TooLong  # what comes behind it is not answered
        self._unset_keepalive_if_required()
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def on_response_complete(self) -> None:
        """An answer is whole."""
        self._closing.flush()
        super().on_response_complete()

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
        if self.admission and not self._refusing and not (is_waiting and self.cycle.more_body):  # which count elsewhere
            self.admission.refused(status, reason)
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
        self._unset_keepalive_if_required()
        if not self.transport.can_write_eof():  # TLS
            self.transport.close()
            return
        self.flow.resume_reading()
        self.transport.write_eof()
        self._deadline = self.loop.call_later(limit_s, self._too_late)
