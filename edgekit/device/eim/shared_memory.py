"""Blocks of shared memory through which newer clients pass samples instead of as JSON.

POSIX shared memory is a file in /dev/shm on Linux, so that no helper process has to watch over it: the owner holds a
lock as long as it lives, and a block without a lock is removed by the next process.
"""

from __future__ import annotations

import mmap
import os
from contextlib import suppress
from itertools import count

import numpy as np

from edgekit.runner.errors import ResourceError

FOLDER = "/dev/shm"
PREFIX = "edgekit-eim-"
NUMBERS = count()
ITEM_BYTES = 4


class SharedFeatures:
    """A block of `length` float32 values that a client writes and this process reads.

    `name` is the one for `shm_open`. Raises ResourceError if the system has no such memory, or too little.
    """

    def __init__(self, length: int) -> None:
        import fcntl

        name = f"{PREFIX}{os.getpid()}-{next(NUMBERS)}"
        self.name, self.length, self.size_bytes = f"/{name}", length, length * ITEM_BYTES
        self._path = os.path.join(FOLDER, name)
        try:
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ResourceError(f"{FOLDER}: {error.strerror}; clients send JSON instead") from None
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
            os.posix_fallocate(self._descriptor, 0, self.size_bytes)  # else writing could end the client by SIGBUS
            self._memory = mmap.mmap(self._descriptor, self.size_bytes)
        except OSError as error:
            os.close(self._descriptor)
            os.unlink(self._path)
            raise ResourceError(f"{FOLDER}: {error.strerror}; clients send JSON instead") from None

    def read(self) -> np.ndarray:
        """Return a copy of the values (length,) float32."""
        return np.frombuffer(self._memory, np.float32).copy()

    def close(self) -> None:
        """Remove the block. A client that has mapped it keeps its own mapping."""
        self.unlink()
        self._memory.close()
        os.close(self._descriptor)

    def unlink(self) -> None:
        """Remove the name of the block."""
        with suppress(FileNotFoundError):  # the resource tracker of a Python client that was killed removes it, too
            os.unlink(self._path)


def remove_abandoned() -> None:
    """Remove the blocks of processes that were killed."""
    with suppress(OSError):
        for name in os.listdir(FOLDER):
            if name.startswith(PREFIX):
                with suppress(OSError):
                    _remove_if_unlocked(os.path.join(FOLDER, name))


def _remove_if_unlocked(path: str) -> None:
    import fcntl

    descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.unlink(path)
    finally:
        os.close(descriptor)
