"""Writing a file so that it is either the old one or the whole new one, whatever happens."""

from __future__ import annotations

import errno
import os
import sys
import zlib
from contextlib import suppress
from pathlib import Path

BINARY = getattr(os, "O_BINARY", 0)
"""For `os.open`: Windows changes line ends without it, and other systems do not have it."""
READ_FILE = os.O_RDONLY | BINARY | getattr(os, "O_NONBLOCK", 0)
"""For `os.open`: open a file for reading without waiting for a writer where it is a pipe."""
NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
"""For `os.open`: refuse a symbolic link. Windows cannot."""

READ_ONLY_ERRORS = (errno.EROFS, errno.EACCES, errno.EPERM)
"""What a folder says in which nobody can write, or not this user."""


def write_atomically(path: Path, data: bytes, mode: int = 0o666) -> None:
    """Temporary file, fsync, replace, fsync of the folder. The umask takes away from `mode`."""
    temporary = temporary_path(path)
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | BINARY, mode), "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    finally:
        remove_quietly(temporary)
    sync_folder(path.parent)


def remove_quietly(path: Path) -> None:
    """Remove a file that may be there. What keeps it there is not raised, because it would hide what went wrong before.

    So no lock stays taken, and no error is lost, where a disk has become read-only meanwhile.
    """
    with suppress(OSError):
        if path.exists():
            path.unlink()


def can_lock(path: Path, operation: int) -> bool:
    """Whether no other process keeps out a lock on a file, `fcntl.LOCK_SH` or `fcntl.LOCK_EX`; none is kept."""
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
    """Where this process writes what becomes `path`; short, for the path's own name may be as long as a name can be."""
    return path.with_name(f".{zlib.crc32(os.fsencode(path.name)):08x}.{os.getpid()}.tmp")


def sync_file(path: Path) -> None:
    """Make the bytes of a file that something else wrote survive a power cut."""
    with open(path, "r+b" if os.name == "nt" else "rb") as stream:  # Windows syncs only what is open for writing
        os.fsync(stream.fileno())


def sync_folder(folder: Path) -> None:
    """Make what was renamed in a folder survive a power cut; systems other than POSIX do so by themselves."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_folder(folder: Path) -> None:
    """A folder and those above it, each name made durable; nothing happens where it is there."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)


def move_durably(written: Path, final: Path) -> None:
    """Put a file that something else wrote in its place, its bytes made durable first."""
    sync_file(written)
    os.replace(written, final)
    sync_folder(final.parent)
