"""A file that arrives in pieces, over lines that are cut: appended to, checked when whole, then never changed."""

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
"""Of a bundle."""
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
    """Append a stream to what has arrived of a file, and put it into the store when it is whole.

    Parameters
    ----------
    on_offset
        Called with the bytes that are safe on the disk and whether the file is in the store: at the end, also behind
        an error of the offset, and every `acknowledge` bytes.
    offset
        Where the stream begins; None: where the last one ended.
    size
        Bytes of the whole file. Without it the file is held against its digest where the stream ends.
    resend
        The stream is the whole file, whatever has arrived of it.
    restart
        Remove what has arrived first.

    Raises
    ------
    InputError
        The stream begins elsewhere, another command appends to the file, or there are more bytes than `size`, or than
        a bundle may have.
    ResourceError
        There is no room for `size` bytes.
    TrustError
        There are `size` bytes or more with another digest; they are removed.
    """
    if size is not None and size > LARGEST_BYTES:
        raise InputError(
            f"{sha256}: got a size of {size} bytes, at most {LARGEST_BYTES} are taken; send the right file"
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
        at = os.fstat(handle).st_size
        if offset is not None and offset != at:
            on_offset(at, False)
            raise InputError(f"{sha256}: got offset {offset}; {at} bytes are here, so send from there")
        _check_room(home, sha256, 0 if size is None else size - at)
        if resend:
            stream.seek(at)
        told, most = at, LARGEST_BYTES if size is None else size
        while at < most or size is None:
            data = stream.read1(PIECE_BYTES)  # what is there, without waiting for more
            if not data:
                break
            at = _append(handle, path, data, at, most)
            if acknowledge and at - told >= acknowledge:
                os.fsync(handle)
                on_offset(at, False)
                told = at
        os.fsync(handle)
        on_offset(at, _store(home, handle, path, sha256, size is not None and at >= size))
    finally:
        os.close(handle)


def _append(handle: int, path: Path, data: bytes, at: int, most: int) -> int:
    """Write all of it, unless another command has written meanwhile; the new size."""
    if at + len(data) > most:
        raise InputError(f"{path.name}: there are more than {most} bytes; send the right file with --restart")
    fcntl.flock(handle, fcntl.LOCK_EX)  # of the file: others may go on while this one waits for a line that is cut
    try:
        if os.fstat(handle).st_size != at or not _is_at(handle, path):
            raise InputError(f"{path.name}: another command appends to it; ask for the offset, and go on from there")
        view = memoryview(data)
        while view:
            view = view[os.write(handle, view) :]
    finally:
        fcntl.flock(handle, fcntl.LOCK_UN)
    return at + len(data)


def _store(home: Home, handle: int, path: Path, sha256: str, at_its_end: bool) -> bool:
    """Move a whole file into the store; False where it is none yet. TrustError, and no file, where it never will be."""
    fcntl.flock(handle, fcntl.LOCK_EX)
    if not _is_at(handle, path):  # another command was faster
        return (home.store / sha256).exists()
    if file_digest(handle) == sha256:
        os.replace(path, home.store / sha256)
        os.fchmod(handle, 0o444)
        sync_folder(home.store)
        sync_folder(home.incoming)
        return True
    if at_its_end:
        path.unlink()
        sync_folder(home.incoming)
        raise TrustError(f"{sha256}: what came has another digest, and was removed; send the file again")
    return False


def _check_room(home: Home, sha256: str, wanted: int) -> None:
    found = os.statvfs(home.root)
    free = found.f_bavail * found.f_frsize
    if wanted > free and found.f_blocks:  # a tmpfs without a limit has none
        raise ResourceError(f"{sha256}: {wanted} bytes are to come, {free} are free in {home.root}; use `edgerun gc`")


def is_stored(home: Home, sha256: str) -> bool:
    """Whether a whole file is in the store; one that was damaged there is removed."""
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
    """How much has arrived of each file that is not whole."""
    return {path.name: found.st_size for path, found in regular_files(home.incoming)}


def regular_files(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Those of the store, or what has arrived of files; links and folders are none."""
    for path in sorted(folder.glob("*")):
        with suppress(FileNotFoundError):  # another command moves or removes it
            if stat.S_ISREG((found := path.lstat()).st_mode):
                yield path, found


def modification_times_ns(home: Home) -> dict[str, int]:
    """When each file that is here was last written, by its name: a later one differs, whatever the clock says."""
    every = [*regular_files(home.store), *regular_files(home.incoming)]
    return {f"{path.parent.name}/{path.name}": found.st_mtime_ns for path, found in every}
