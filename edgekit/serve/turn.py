"""Since when a request has been there, and whether it can still be answered in time.

Under load a hundred sockets are ready at once, and the last is read when the others are answered. What is ready then
came while the loop was at the round before. A deadline that counted from the reading would refuse nobody, and answer
everybody too late. When a server is overloaded for longer than its clients' patience, a long round only makes all of
them wait: rounds are kept short, and what is left of one is refused. CoDel (RFC 8289) tells a burst from overload so.
"""

from __future__ import annotations

import asyncio
from time import monotonic, thread_time

REST_S = 2e-4
"""The loop has rested where it spent this between two rounds without computing: it waited for sockets."""
SHORT_S = 3e-3
SHORT_SHARE = 0.2
"""Of the patience: a round under overload answers for so long, or for `SHORT_S`. Nobody waits for more than two."""


class Turn:
    """One round of the event loop over the sockets that are ready. All times are of `time.monotonic`, in seconds."""

    def __init__(self) -> None:
        self._began_s: float | None = None
        self._last_began_s = self._ended_s = self._ended_cpu_s = 0.0
        self._came_s = 0.0  # what is read in this round came at this time or later
        self._busy_s = 0.0  # the loop has not rested since

    def reads(self, loop: asyncio.AbstractEventLoop) -> None:
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
