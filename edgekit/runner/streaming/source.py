"""The source of a stream: a binary file, or an iterable of bytes or arrays."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from time import perf_counter_ns
from typing import Any

import numpy as np

from edgekit.runner.errors import InputError

MOST_BYTES = 1 << 16
"""Bytes per read, which is what a pipe holds."""
ACCEPTED_SOURCES = "an open binary file, or an iterable of bytes or of numpy arrays"


class Source:
    """Yields the parts of a stream in order, as soon as they arrive. `arrived_ns` is when the newest part arrived."""

    def __init__(self, source: Any) -> None:
        self.arrived_ns = 0
        self._source = source
        self._reads = callable(getattr(source, "read", None))
        if not self._reads and (isinstance(source, (bytes, str, np.ndarray)) or not hasattr(source, "__iter__")):
            raise InputError(f"source: got {type(source).__name__}; use {ACCEPTED_SOURCES}")

    @property
    def is_live(self) -> bool:
        """Whether the source is a pipe, a socket or a device, whose data do not wait until they are read."""
        try:
            mode = os.fstat(self._source.fileno()).st_mode
        except (AttributeError, OSError, ValueError):  # not a file, or one in memory
            return False
        return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or stat.S_ISCHR(mode)

    def __iter__(self) -> Iterator[Any]:
        """Yield bytes, or arrays unchanged."""
        for part in self._parts() if self._reads else self._source:
            self.arrived_ns = perf_counter_ns()
            if isinstance(part, (bytearray, memoryview)):
                part = bytes(part)
            if not isinstance(part, (bytes, np.ndarray)):
                raise InputError(f"source: it gave {type(part).__name__}; use {ACCEPTED_SOURCES}")
            yield part

    def _parts(self) -> Iterator[bytes]:
        """Yield the bytes that each read returns. `read1` does not wait until a buffer is full."""
        read = getattr(self._source, "read1", self._source.read)
        while True:
            part = read(MOST_BYTES)
            if part is None:
                raise InputError("source: it does not wait for data; open it in blocking mode")
            if not part:
                return
            yield part
