"""Standard error without the remarks that native libraries write about themselves."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet_native(log: str | os.PathLike[str] = os.devnull) -> Iterator[int]:
    """Send what is written to file descriptor 2 into `log`; exceptions of Python are not touched.

    Yields a file descriptor that still writes to standard error. Only commands and the workbook call this: the process
    that uses edgekit as a library keeps its standard error.
    """
    if sys.stderr is not None:
        sys.stderr.flush()
    kept = duplicate_stderr()
    sink = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    try:
        os.dup2(sink, 2)
        yield kept
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(sink)


def duplicate_stderr() -> int:
    """A new file descriptor that writes to standard error.

    A process that was started without one gets one that leads nowhere, before another file takes its number.
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
