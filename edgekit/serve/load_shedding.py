"""Load shedding: refuses requests that cannot be answered in time, before they cost anything.

In each round, the event loop reads all sockets that are ready. Under load, these may be a hundred, and the last socket
is read only after the requests of the others have been answered. The request in this socket arrived during the previous
round, so its deadline counts from the start of that round. If the deadline counted from when the request is read, no
request would ever be refused as late, and all would be answered too late.

If a server is overloaded for longer than its clients are willing to wait, long rounds only make all clients wait.
Rounds are then kept short, and the requests that remain are refused. CoDel (RFC 8289) distinguishes bursts from
overload in the same way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic, perf_counter_ns, thread_time
from typing import TYPE_CHECKING, Any

import orjson

from edgekit.serve.counters import count_early_refusal, count_refusal
from edgekit.serve.errors import LATE_TEXT, RequestError, late_error
from edgekit.serve.request import HEADER_LENGTH, check_token, deadline_ms

if TYPE_CHECKING:
    from typing import Protocol

    class App(Protocol):
        """The part of the server's app that a connection uses."""

        is_draining: bool
        row: memoryview
        settings: Any
        lag: LoopLag
        tokens: Any

        def model_at(self, path: str) -> Any: ...


IDLE_S = 2e-4
"""The event loop counts as idle if it spent this much time between two rounds without computing."""
SHORT_ROUND_S = 3e-3
SHORT_ROUND_SHARE = 0.2
"""Under overload, a round lasts at most this share of a request's time limit, or `SHORT_ROUND_S` if that is longer.

A request waits for at most two rounds: the one in which it arrives and the one in which it is read.
"""


class LoopLag:
    """Measures the rounds of the event loop over ready sockets. All times are on the clock of `time.monotonic`."""

    def __init__(self) -> None:
        self._began_s: float | None = None
        self._last_began_s = self._ended_s = self._ended_cpu_s = 0.0
        self._arrived_s = 0.0  # data read in this round arrived at this time or later
        self._busy_s = 0.0  # the loop has not been idle since this time

    def note_read(self, loop: asyncio.AbstractEventLoop) -> None:
        """Note that data was read from a socket."""
        if self._began_s is not None:
            return
        now = monotonic()
        if now - self._ended_s - (thread_time() - self._ended_cpu_s) > IDLE_S:
            self._arrived_s = self._busy_s = now
        else:
            self._arrived_s = self._last_began_s
        self._began_s = self._last_began_s = now
        loop.call_soon(self._end)  # runs when all sockets that were ready have been read

    def _end(self) -> None:
        self._began_s = None
        self._ended_s, self._ended_cpu_s = monotonic(), thread_time()

    def arrived_s(self) -> float:
        """Estimate when the current request arrived: if the loop was busy, at the start of the previous round."""
        return monotonic() if self._began_s is None else self._arrived_s

    @property
    def is_long(self) -> bool:
        """Whether this round has already lasted so long that requests read now may be late."""
        return self._began_s is not None and monotonic() - self._arrived_s > SHORT_ROUND_S / 2

    def is_late(self, granted_s: float) -> bool:
        """Return whether to refuse the current request, which must be answered within `granted_s` of its arrival."""
        if self._began_s is None:
            return False
        now = monotonic()
        if now > self._arrived_s + granted_s:
            return True
        return (
            now - self._began_s > max(SHORT_ROUND_S, SHORT_ROUND_SHARE * granted_s) and now - self._busy_s > granted_s
        )


_BODY = orjson.dumps({"error": LATE_TEXT})
RETRY_S = 1
ANSWER = b"content-type: application/json\r\ncontent-length: %d\r\nretry-after: %d\r\n\r\n%b" % (
    len(_BODY),
    RETRY_S,
    _BODY,
)
"""The refusal of a late request, after the status line and the server's own headers."""


OnRefusal = Callable[[bytes, list[tuple[bytes, bytes]]], None]


class EarlyRefusal:
    """Decides, once the headers of a request are complete, whether to refuse it before the app sees it.

    Invalid requests are left to the app. `refused_late` is called with the URL and headers of each refused request.
    """

    def __init__(self, app: App, refused_late: OnRefusal | None = None) -> None:
        self._app, self._on_refusal = app, refused_late

    @property
    def is_ending(self) -> bool:
        """Whether the server is shutting down, so that each answer closes its connection."""
        return self._app.is_draining

    def count_refusal(self, status: int, reason: str) -> None:
        """Count a refusal that a connection makes by itself, before the app sees the request."""
        count_early_refusal(self._app.row, RequestError(status, reason))

    def is_late(self, url: bytes, headers: list[tuple[bytes, bytes]]) -> bool:
        """Return whether to refuse a POST to `url` at once. If so, the refusal is counted."""
        if self.is_ending or not (url.startswith(b"/v2/models/") and url.endswith(b"/infer")):
            return False
        app, header_values = self._app, dict(headers)
        try:
            client_deadline_ms = deadline_ms(header_values)
            if (
                not client_deadline_ms and header_values.get(HEADER_LENGTH) == b"0"
            ):  # the body has no JSON that could set a deadline
                client_deadline_ms = app.settings.deadline_ms
            if not client_deadline_ms or not app.lag.is_late(client_deadline_ms / 1e3):
                return False
            if app.tokens:
                check_token(app.tokens, header_values)
            served = app.model_at(url.decode("ascii"))
        except (RequestError, ValueError):
            return False
        count_refusal(served.row, late_error(0), perf_counter_ns())
        if self._on_refusal is not None:
            self._on_refusal(url, headers)
        return True
