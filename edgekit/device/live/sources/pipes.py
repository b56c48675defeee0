"""Pipes of child processes: waiting for data with a time limit, and more space for pictures."""

from __future__ import annotations

import select
import sys
from collections.abc import Callable
from contextlib import suppress

PIPE_BYTES = 1 << 20
F_SETPIPE_SZ = 1031
"""Linux' number, which Python names only since 3.10."""


def poller(descriptor: int) -> Callable[[float], bool]:
    """Return a function that waits for data or the end of a file descriptor, and returns whether it came in time.

    On Windows, which cannot wait for a pipe, it returns True at once.
    """
    if sys.platform == "win32":
        return lambda timeout_s: True
    poll = select.poll()
    poll.register(descriptor, select.POLLIN | select.POLLHUP)
    return lambda timeout_s: bool(poll.poll(timeout_s * 1000))


def widen(descriptor: int) -> None:
    """Let a pipe hold PIPE_BYTES, so that a picture needs fewer reads. Does nothing where that is not possible."""
    if sys.platform == "linux":
        import fcntl

        with suppress(OSError):
            fcntl.fcntl(descriptor, F_SETPIPE_SZ, PIPE_BYTES)
