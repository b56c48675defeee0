"""Memory that one step frees is kept for the next one: else each step gets it from the kernel again, page by page.

glibc gives the top of its heap back when enough of it is free, and takes large blocks from the kernel one by one. Both
limits are raised while a training lasts. Other C libraries are left as they are.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""Numbers of glibc's malloc.h."""
LARGEST_BLOCK = 32 << 20
"""The largest limit that glibc takes for blocks of the heap, bytes; by itself it goes that far too."""
WHILE_TRAINING, AFTERWARDS = (1 << 31) - 1, 2 * LARGEST_BLOCK
"""Free bytes at the top that are not given back. The second is what glibc sets beside its largest block."""


@contextmanager
def kept() -> Iterator[None]:
    """Inside, freed memory stays with the process; afterwards it is given back."""
    libc = ctypes.CDLL(None) if os.name == "posix" else None
    if libc is None or not hasattr(libc, "gnu_get_libc_version"):
        yield
        return
    libc.mallopt(MMAP_THRESHOLD, LARGEST_BLOCK)
    libc.mallopt(TRIM_THRESHOLD, WHILE_TRAINING)
    try:
        yield
    finally:
        libc.mallopt(TRIM_THRESHOLD, AFTERWARDS)
        libc.malloc_trim(0)
