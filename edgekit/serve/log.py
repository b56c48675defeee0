"""The log on standard error. A full disk or a closed pipe behind it never stops the server.

Lines bypass Python's buffer, because a line that remained in it would be written again at exit and fail there.
"""

from __future__ import annotations

import asyncio
import os
import sys
import traceback
from typing import Any

from edgekit.serve.errors import printable

MAX_FRAMES = 8
"""At most this many frames of an error are logged, beginning with the innermost."""


class Log:
    """The log of one process. `write` never raises. After lines were lost, the next line reports how many."""

    def __init__(self) -> None:
        self._lost = 0
        self._reason = ""

    def write(self, text: str) -> None:
        """Write one line."""
        if sys.stderr is None:  # descriptor 2 may then belong to another file
            return
        remark = f"{self._lost} lines before this one could not be written: {self._reason}\n" if self._lost else ""
        try:
            os.write(sys.stderr.fileno(), f"{remark}edgekit serve: {printable(text)}\n".encode(errors="replace"))
        except (OSError, ValueError) as error:
            self._lost += 1
            self._reason = getattr(error, "strerror", None) or type(error).__name__
        else:
            self._lost = 0


log = Log().write


def where(error: BaseException) -> str:
    """Describe an exception by its type and the places where it was raised, innermost first.

    Its message is left out, because it may contain data from clients.
    """
    places = [
        f"{'/'.join(frame.f_code.co_filename.split('/')[-2:])}:{line} {frame.f_code.co_name}"
        for frame, line in traceback.walk_tb(error.__traceback__)
    ]
    shown = ", from ".join(places[: -MAX_FRAMES - 1 : -1])
    return f"{type(error).__name__} at {shown}" if shown else type(error).__name__


def unhandled(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log an unhandled exception of the event loop, without messages and arguments, which asyncio would log."""
    error = context.get("exception")
    log(f"internal error: {where(error) if error is not None else 'no exception was raised'}")
