"""What is read out of a finished file for the report: it must never cost the file."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import TypeVar

Row = TypeVar("Row")


def rows(what: str, read: Callable[[], Iterable[Row]]) -> tuple[Row, ...]:
    """What `read` finds in a file; nothing, and a line on standard error, where it fails for whatever reason."""
    try:
        return tuple(read())
    except Exception as error:  # parsers of files and interpreters raise what they like
        print(f"{what} could not be read: {type(error).__name__}: {error}; the file is kept", file=sys.stderr)
        return ()
