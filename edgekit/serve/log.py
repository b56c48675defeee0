"""Lines on standard error. It may lie on a disk that is full, or be a pipe that nobody reads any more: nothing stops.

They are written without Python's buffer. What stays in that would be tried again at the end, which then fails.
"""

from __future__ import annotations

import asyncio
import os
import sys
import traceback
from typing import Any

from edgekit.serve.errors import printable

MOST_FRAMES = 8
"""Of an error that are named, from the innermost."""


class Log:
    """Of one process. `write` never raises; the first line that comes through again says what was lost."""

    def __init__(self) -> None:
        self._lost = 0
        self._reason = ""

    def write(self, text: str) -> None:
        """One line."""
        if sys.stderr is None:  # descriptor 2 may then be another file's
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
    """An error's kind and where it was raised, the innermost place first; not its message, which a client may fill."""
    places = [
        f"{'/'.join(frame.f_code.co_filename.split('/')[-2:])}:{line} {frame.f_code.co_name}"
        for frame, line in traceback.walk_tb(error.__traceback__)
    ]
    shown = ", from ".join(places[: -MOST_FRAMES - 1 : -1])
    return f"{type(error).__name__} at {shown}" if shown else type(error).__name__


def unhandled(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """For `set_exception_handler`: what asyncio itself would log holds messages and arguments."""
    error = context.get("exception")
    log(f"internal error: {where(error) if error is not None else 'none was raised'}")
