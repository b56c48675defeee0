"""Keep native libraries' remarks about themselves out of notebooks and progress bars."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet_native() -> Iterator[None]:
    """Drop what is written to file descriptor 2 inside; Python's own exceptions are not touched."""
    sys.stderr.flush()
    kept = os.dup(2)
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
