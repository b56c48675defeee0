"""Lines on standard error. It may lie on a disk that is full, or be a pipe that nobody reads any more: nothing stops.

They are written without Python's buffer. What stays in that would be tried again at the end, which then fails.
"""

from __future__ import annotations

import os
import sys

from edgekit.serve.refusal import printable


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
