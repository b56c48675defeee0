"""Lines on stderr that stay whole, whichever threads write them."""

from __future__ import annotations

import sys


def to_stderr(line: str) -> None:
    """Write `line` and its end at once: `print` writes them in two calls, and another thread's line gets between."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def named_to_stderr(name: str, line: str) -> None:
    """A line of one of several that are at work, as progress shows it: the name stands before it."""
    to_stderr(f"{name} · {line}")
