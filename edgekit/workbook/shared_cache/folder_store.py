"""A folder that holds the objects: on this machine, or on a file system that several machines mount."""

from __future__ import annotations

import errno
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from edgekit.runner.files import discard, make_folder, sync_folder
from edgekit.workbook.shared_cache.store import Found, Kind, StoreError

PIECE_BYTES = 1 << 20
WORKING = ".tmp-"
"""How the name of a file begins that is being written; a killed writer leaves it, `edgekit cache prune` removes it."""
NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV)


class FolderStore:
    """See `Store`."""

    def __init__(self, folder: Path, url: str = "") -> None:
        self.folder, self.url = folder, url or str(folder)

    def read(self, path: str) -> Iterator[bytes] | None:
        """See `Store.read`."""
        try:
            stream = open(self.folder / path, "rb")  # noqa: SIM115 - closed where the pieces end
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _failed(error) from None
        return _pieces(stream.fileno(), stream)

    def create(self, path: str, content: Path | bytes) -> bool:
        """See `Store.create`."""
        final = self.folder / path
        if final.exists():
            return False
        working = final.with_name(f"{WORKING}{os.getpid()}-{secrets.token_hex(4)}")
        try:
            make_folder(final.parent)
            try:
                _write(working, content, os.O_EXCL)
                return _link(working, final)
            finally:
                discard(working)
        except OSError as error:
            raise _failed(error) from None

    def list(self, prefix: str) -> Iterator[Found]:
        """See `Store.list`."""
        folder, _, begins = prefix.rpartition("/")
        try:
            with os.scandir(self.folder / folder) as entries:
                for entry in entries:
                    if entry.name.startswith(begins) and entry.is_file(follow_symlinks=False):
                        facts = entry.stat(follow_symlinks=False)
                        yield Found(f"{folder}/{entry.name}", facts.st_size, max(time.time() - facts.st_mtime, 0.0))
        except FileNotFoundError:
            return
        except OSError as error:
            raise _failed(error) from None

    def remove(self, path: str) -> None:
        """See `Store.remove`."""
        try:
            (self.folder / path).unlink(missing_ok=True)
        except OSError as error:
            raise _failed(error) from None


def _pieces(handle: int, stream: object) -> Iterator[bytes]:
    """`stream` is held, for it closes its handle with its own end."""
    while True:
        try:
            piece = os.read(handle, PIECE_BYTES)
        except OSError as error:
            raise _failed(error) from None
        if not piece:
            return
        yield piece


def _write(path: Path, content: Path | bytes, flag: int) -> None:
    """With the rights that the umask gives, for others are to read it."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | flag, 0o666)
    with os.fdopen(handle, "wb") as stream:
        if isinstance(content, bytes):
            stream.write(content)
        else:
            with open(content, "rb") as source:
                while piece := source.read(PIECE_BYTES):
                    stream.write(piece)
        stream.flush()
        os.fsync(stream.fileno())


def _link(working: Path, final: Path) -> bool:
    """Give a whole file its name in one step; where the file system knows no links, create it under that name.

    A reader of the latter may see a part of it, which its hash tells.
    """
    try:
        os.link(working, final)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        try:
            _write(final, working, os.O_EXCL)
        except FileExistsError:
            return False
        except OSError:
            with suppress(OSError):
                final.unlink(missing_ok=True)
            raise
    sync_folder(final.parent)
    return True


def _failed(error: OSError) -> StoreError:
    kinds: dict[int | None, Kind] = {
        errno.ENOSPC: "full",
        errno.EDQUOT: "full",
        errno.EFBIG: "full",
        errno.EROFS: "read-only",
        errno.EACCES: "read-only",
        errno.EPERM: "read-only",
    }
    return StoreError(kinds.get(error.errno, "unreachable"), (error.strerror or str(error)).lower())
