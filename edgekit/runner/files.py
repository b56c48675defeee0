"""Atomic and durable file operations: after a crash a file is either the old one or the complete new one."""

from __future__ import annotations

import errno
import os
import sys
import zlib
from contextlib import suppress
from pathlib import Path

BINARY = getattr(os, "O_BINARY", 0)
"""Flag for `os.open`. Windows changes line ends without it; other systems do not have it."""
READ_FILE = os.O_RDONLY | BINARY | getattr(os, "O_NONBLOCK", 0)
"""Flags for `os.open` that open a file for reading, without waiting for a writer if it is a pipe."""
NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
"""Flag for `os.open` that refuses a symbolic link. Windows does not have it."""

READ_ONLY_ERRORS = (errno.EROFS, errno.EACCES, errno.EPERM)
"""The errors of writing into a folder in which nobody, or not this user, may write."""


def write_atomically(path: Path | str, data: bytes, mode: int = 0o666) -> None:
    """Write a temporary file, sync it, move it into place and sync the folder. The umask applies to `mode`.

    A process that writes new names for years passes strings: Python 3.12 never frees the parts of a `Path`.
    """
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, _temporary_name(name))
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | BINARY, mode), "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    finally:
        remove_quietly(temporary)
    sync_folder(Path(folder))


def remove_quietly(path: Path | str) -> None:
    """Remove a file if it exists. Errors are ignored, because they would hide an earlier error.

    If a disk has become read-only, for example, locks are still released and the first error is still reported.
    """
    with suppress(OSError):
        if os.path.exists(path):
            os.unlink(path)


def can_lock(path: Path, operation: int) -> bool:
    """Whether a file could be locked now with `operation`, `fcntl.LOCK_SH` or `fcntl.LOCK_EX`. The lock is not kept."""
    if sys.platform == "win32":
        raise NotImplementedError("Windows has no such locks")
    import fcntl

    handle = os.open(path, os.O_RDONLY | NO_FOLLOW)
    try:
        fcntl.flock(handle, operation | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(handle)
    return True


def temporary_path(path: Path) -> Path:
    """Return where this process writes a file before it becomes `path`.

    The name is short, because the name of `path` may be as long as a name can be.
    """
    return path.with_name(_temporary_name(path.name))


def _temporary_name(name: str) -> str:
    return f".{zlib.crc32(os.fsencode(name)):08x}.{os.getpid()}.tmp"


def sync_file(path: Path) -> None:
    """Make a file that something else wrote survive a power cut."""
    with open(path, "r+b" if os.name == "nt" else "rb") as stream:  # Windows syncs only files that are open for writing
        os.fsync(stream.fileno())


def sync_folder(folder: Path) -> None:
    """Make renames in a folder survive a power cut. Systems other than POSIX do so by themselves."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_folder(folder: Path) -> None:
    """Create a folder and its parents durably. Nothing happens if it exists."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)


def move_durably(source: Path, destination: Path) -> None:
    """Move a file that something else wrote into place, after making its bytes durable."""
    sync_file(source)
    os.replace(source, destination)
    sync_folder(destination.parent)
