"""A bound on calls within calls, for data and code from elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

LIMIT = 3000
"""Three times Python's default, and far fewer than the stack of a process holds."""


@contextmanager
def bounded_recursion() -> Iterator[None]:
    """What nests or calls itself without end raises RecursionError meanwhile, whatever was imported before.

    Converters raise Python's limit as they are imported; the stack then overflows, and the process ends by SIGSEGV.
    """
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(min(before, LIMIT))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)
