"""Standard error without the messages that native libraries write about themselves."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_redirecting = threading.RLock()
"""Only one thread can redirect the descriptor at a time, because another one would restore the redirection."""


@contextmanager
def quiet_native(log: str | os.PathLike[str] = os.devnull) -> Iterator[int]:
    """Redirect file descriptor 2 into `log`. Python exceptions are not affected.

    Yields a file descriptor that still writes to standard error. Only commands and the pipeline use this; a process
    that uses edgekit as a library keeps its standard error.
    """
    with _redirecting:
        if sys.stderr is not None:
            sys.stderr.flush()
        original = duplicate_stderr()
        sink = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        try:
            os.dup2(sink, 2)
            yield original
        finally:
            os.dup2(original, 2)
            os.close(original)
            os.close(sink)


def duplicate_stderr() -> int:
    """Return a new file descriptor that writes to standard error.

    If the process was started without standard error, it gets one that discards everything, so that no other file can
    be opened as descriptor 2.
    """
    try:
        return os.dup(2)
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        if nowhere != 2:
            os.dup2(nowhere, 2)
            os.close(nowhere)
        os.set_inheritable(2, True)
        return os.dup(2)
