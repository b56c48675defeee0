"""Since when a request has been there: at least since the event loop began to read what it reads now.

Under load a hundred sockets are ready at once, and the last is read when the others are answered. Its deadline counts
from the first, or the server would answer everybody too late and refuse nobody.
"""

from __future__ import annotations

import asyncio
from time import monotonic


class Turn:
    """One round of the event loop over the sockets that are ready. All times are of `time.monotonic`, in seconds."""

    def __init__(self) -> None:
        self._began_s: float | None = None

    def reads(self, loop: asyncio.AbstractEventLoop) -> None:
        """Data were read from a socket."""
        if self._began_s is None:
            self._began_s = monotonic()
            loop.call_soon(self._end)  # runs when all sockets that were ready have been read

    def _end(self) -> None:
        self._began_s = None

    def arrived_s(self) -> float:
        """When what is handled now came, as far as can be known."""
        return monotonic() if self._began_s is None else self._began_s
