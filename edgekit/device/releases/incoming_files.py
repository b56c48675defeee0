"""Files that arrive in pieces over unreliable connections: appended, checked when complete, then never changed."""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from io import BufferedIOBase
from pathlib import Path

from edgekit.device.releases import transitions
from edgekit.device.releases.current_release import file_digest
from edgekit.device.releases.home import Home, create_home
from edgekit.runner.errors import InputError, ResourceError, TrustError
from edgekit.runner.files import sync_folder

PIECE_BYTES = 1 << 16
LARGEST_BYTES = 2**31 - 1
"""Largest size of a bundle."""
OPEN = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW


def receive_file(
    home: Home,
    sha256: str,
    stream: BufferedIOBase,
    on_offset: Callable[[int, bool], object],
    offset: int | None = None,
    size: int | None = None,
    acknowledge: int = 0,
    resend: bool = False,
    restart: bool = False,
) -> None:
    """Append a stream to what has arrived of a file, and move it into the store when it is complete.

    Parameters
    ----------
    home : Home
        Where the file goes.
    sha256 : str
        The digest of the complete file.
    stream : binary file
        The bytes.
    on_offset : callable
        Called with the number of bytes that are safe on the disk, and with whether the file is in the store. It is
        called every `acknowledge` bytes, at the end, and if the offset is wrong.
    offset : int, optional
        Position in the file at which the stream begins. By default, the stream continues where the last one ended.
    size : int, optional
        Size of the complete file. Without it, the file is checked when the stream ends.
    acknowledge : int
        Report the offset each time that this many bytes have arrived.
    resend : bool
        The stream is the complete file, so the part that has already arrived is skipped.
    restart : bool
        First remove the part that has already arrived.

    Raises
    ------
    InputError
        The stream begins at another offset, another command appends to the file, or there are more bytes than `size`
        or than a bundle may have.
    ResourceError
        The disk is too full for `size` bytes.
    TrustError
        `size` bytes have arrived, but their digest is another one. They are removed.
    """
    if size is not None and size > LARGEST_BYTES:
        raise InputError(
            f"{sha256}: got a size of {size} bytes, but at most {LARGEST_BYTES} are accepted; send the right file"
        )
    create_home(home)
    with home.locked():
        transitions.recover(home)
    stored = home.store / sha256
    if is_stored(home, sha256):
        on_offset(stored.stat().st_size, True)
        return
    path = home.incoming / sha256
    if restart:
        with suppress(FileNotFoundError):
            path.unlink()
    handle = os.open(path, OPEN, 0o600)
    sync_folder(home.incoming)
    try:
        position = os.fstat(handle).st_size
        if offset is not None and offset != position:
            on_offset(position, False)
            raise InputError(f"{sha256}: got offset {offset}, but {position} bytes have arrived; send from that offset")
        _check_room(home, sha256, 0 if size is None else size - position)
        if resend:
            stream.seek(position)
        reported, max_bytes = position, LARGEST_BYTES if size is None else size
        while position < max_bytes or size is None:
            data = stream.read1(PIECE_BYTES)  # what has arrived, without waiting for more
            if not data:
                break
            position = _append(handle, path, data, position, max_bytes)
            if acknowledge and position - reported >= acknowledge:
                os.fsync(handle)
                on_offset(position, False)
                reported = position
        os.fsync(handle)
        on_offset(position, _store(home, handle, path, sha256, size is not None and position >= size))
    finally:
        os.close(handle)


def _append(handle: int, path: Path, data: bytes, position: int, max_bytes: int) -> int:
    """Write all data, unless another command has written meanwhile. Returns the new size."""
    if position + len(data) > max_bytes:
        raise InputError(f"{path.name}: more than {max_bytes} bytes have arrived; send the right file with --restart")
    fcntl.flock(handle, fcntl.LOCK_EX)  # locks this file only, not the home, so that other commands can run
    try:
        if os.fstat(handle).st_size != position or not _is_at(handle, path):
            raise InputError(
                f"{path.name}: another command is appending to it; query the offset, and continue from there"
            )
        view = memoryview(data)
        while view:
            view = view[os.write(handle, view) :]
    finally:
        fcntl.flock(handle, fcntl.LOCK_UN)
    return position + len(data)


def _store(home: Home, handle: int, path: Path, sha256: str, is_at_end: bool) -> bool:
    """Move a complete file into the store. Returns False if it is incomplete. Raises TrustError if it is wrong."""
    fcntl.flock(handle, fcntl.LOCK_EX)
    if not _is_at(handle, path):  # another command was faster
        return (home.store / sha256).exists()
    if file_digest(handle) == sha256:
        os.replace(path, home.store / sha256)
        os.fchmod(handle, 0o444)
        sync_folder(home.store)
        sync_folder(home.incoming)
        return True
    if is_at_end:
        path.unlink()
        sync_folder(home.incoming)
        raise TrustError(f"{sha256}: the received file has another digest and was removed; send it again")
    return False


def _check_room(home: Home, sha256: str, needed_bytes: int) -> None:
    file_system = os.statvfs(home.root)
    free_bytes = file_system.f_bavail * file_system.f_frsize
    if needed_bytes > free_bytes and file_system.f_blocks:  # f_blocks is 0 for a tmpfs without a limit
        raise ResourceError(
            f"{sha256}: {needed_bytes} more bytes are needed, but {free_bytes} are free in {home.root}; "
            f"use `edgerun gc`"
        )


def is_stored(home: Home, sha256: str) -> bool:
    """Whether a complete file is in the store. A damaged one is removed."""
    path = home.store / sha256
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    try:
        if file_digest(handle) == sha256:
            return True
        if _is_at(handle, path):
            transitions.remove_file(path)
        return False
    finally:
        os.close(handle)


def _is_at(handle: int, path: Path) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(handle), os.lstat(path))
    return False


def received_bytes(home: Home) -> dict[str, int]:
    """Return how much has arrived of each incomplete file."""
    return {path.name: status.st_size for path, status in regular_files(home.incoming)}


def regular_files(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield the regular files in a folder with their status. Links and folders are skipped."""
    for path in sorted(folder.glob("*")):
        with suppress(FileNotFoundError):  # another command moves or removes it
            if stat.S_ISREG((status := path.lstat()).st_mode):
                yield path, status


def modification_times_ns(home: Home) -> dict[str, int]:
    """Return when each file was last written, by its path. A later write changes this, even if the clock is wrong."""
    all_files = [*regular_files(home.store), *regular_files(home.incoming)]
    return {f"{path.parent.name}/{path.name}": status.st_mtime_ns for path, status in all_files}
