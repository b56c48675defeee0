"""Memory without a name (memfd) that nobody can change any more: what the first process hands to its workers."""

from __future__ import annotations

import fcntl
import os
import shutil
from typing import IO

SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL


def sealed(name: str, source: IO[bytes]) -> int:
    """A descriptor of a copy of `source`; OSError where there is no memory for it. Closing it frees the memory."""
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        with open(descriptor, "wb", closefd=False) as stream:
            shutil.copyfileobj(source, stream, 1 << 20)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, SEALS)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def path_of(descriptor: int) -> str:
    """Where another process of the same user opens a descriptor of this one, for as long as it is open here."""
    return f"/proc/{os.getpid()}/fd/{descriptor}"
