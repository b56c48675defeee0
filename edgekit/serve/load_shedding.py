"""Refuses requests that cannot be answered in time, before they cost anything: when they came, and by their headers.

Under load a hundred sockets are ready at once, and the last is read when the others are answered. What is ready then
came while the loop was at the round before. A deadline that counted from the reading would refuse nobody, and answer
everybody too late. When a server is overloaded for longer than its clients' patience, a long round only makes all of
them wait: rounds are kept short, and what is left of one is refused. CoDel (RFC 8289) tells a burst from overload so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic, perf_counter_ns, thread_time
from typing import TYPE_CHECKING, Any

import orjson

from edgekit.serve.counters import refused, refused_early
from edgekit.serve.errors import TOO_LATE, RequestError, late
from edgekit.serve.request import HEADER_LENGTH, check_token, deadline_ms

if TYPE_CHECKING:
    from typing import Protocol

    class App(Protocol):
        """The server's app, as far as a connection asks it."""

        is_draining: bool
        row: memoryview
        settings: Any
        lag: LoopLag
        tokens: Any

        def model_at(self, path: str) -> Any: ...


REST_S = 2e-4
"""The loop has rested where it spent this between two rounds without computing: it waited for sockets."""
SHORT_S = 3e-3
SHORT_SHARE = 0.2
"""Of the patience: a round under overload answers for so long, or for `SHORT_S`. Nobody waits for more than two."""


class LoopLag:
    """One round of the event loop over the sockets that are ready. All times are of `time.monotonic`, in seconds."""

    def __init__(self) -> None:
        self._began_s: float | None = None
        self._last_began_s = self._ended_s = self._ended_cpu_s = 0.0
        self._came_s = 0.0  # what is read in this round came at this time or later
        self._busy_s = 0.0  # the loop has not rested since

    def note_read(self, loop: asyncio.AbstractEventLoop) -> None:
        """Data were read from a socket."""
        if self._began_s is not None:
            return
        now = monotonic()
        if now - self._ended_s - (thread_time() - self._ended_cpu_s) > REST_S:
            self._came_s = self._busy_s = now
        else:
            self._came_s = self._last_began_s
        self._began_s = self._last_began_s = now
        loop.call_soon(self._end)  # runs when all sockets that were ready have been read

    def _end(self) -> None:
        self._began_s = None
        self._ended_s, self._ended_cpu_s = monotonic(), thread_time()

    def arrived_s(self) -> float:
        """When what is handled now came, as far as can be known: not later than this."""
        return monotonic() if self._began_s is None else self._came_s

    @property
    def is_long(self) -> bool:
        """Whether this round has lasted, so that what is read now may be late."""
        return self._began_s is not None and monotonic() - self._came_s > SHORT_S / 2

    def is_late(self, granted_s: float) -> bool:
        """Whether what is handled now, and may take `granted_s` from its arrival, is to be refused."""
        if self._began_s is None:
            return False
        now = monotonic()
        if now > self._came_s + granted_s:
            return True
        return now - self._began_s > max(SHORT_S, SHORT_SHARE * granted_s) and now - self._busy_s > granted_s


_BODY = orjson.dumps({"error": TOO_LATE})
RETRY_S = 1
ANSWER = b"content-type: application/json\r\ncontent-length: %d\r\nretry-after: %d\r\n\r\n%b" % (
    len(_BODY),
    RETRY_S,
    _BODY,
)
"""What follows the status line and the server's own headers."""


RefusedLate = Callable[[bytes, list[tuple[bytes, bytes]]], None]


class EarlyRefusal:
    """Asked for each request whose headers are whole. What is wrong with a request is for the app to say.

    `refused_late` is called with the URL and the headers of what was refused.
    """

    def __init__(self, app: App, refused_late: RefusedLate | None = None) -> None:
        self._app, self._refused_late = app, refused_late

    @property
    def is_ending(self) -> bool:
        """Whether the server stops, so that an answer is its connection's last."""
        return self._app.is_draining

    def refused(self, status: int, reason: str) -> None:
        """Count what a connection refuses by itself, before the app sees a request."""
        refused_early(self._app.row, RequestError(status, reason))

    def is_late(self, url: bytes, headers: list[tuple[bytes, bytes]]) -> bool:
        """Whether a POST to `url` is to be refused at once; it is then counted as refused."""
        if self.is_ending or not (url.startswith(b"/v2/models/") and url.endswith(b"/infer")):
            return False
        app, found = self._app, dict(headers)
        try:
            granted_ms = deadline_ms(found)
            if not granted_ms and found.get(HEADER_LENGTH) == b"0":  # no JSON that could grant more
                granted_ms = app.settings.deadline_ms
            if not granted_ms or not app.lag.is_late(granted_ms / 1e3):
                return False
            if app.tokens:
                check_token(app.tokens, found)
            served = app.model_at(url.decode("ascii"))
        except (RequestError, ValueError):
            return False
        refused(served.row, late(0), perf_counter_ns())
        if self._refused_late is not None:
            self._refused_late(url, headers)
        return True
