"""A queue of records in a folder, which keeps them over a crash of the process or the machine until they are done.

    FOLDER/00000000000000000001.log    records in the order of arrival: sequence number, length, CRC-32, bytes
    FOLDER/position                    the id of the queue and the last record that is done
    FOLDER/lock                        locked while a process uses the queue

Records are also held in memory, so that `put` never waits for a disk and a full disk delays nothing: a thread appends
them to the newest file and syncs it. A file is removed when all of its records are done. Where the queue would grow
beyond its limit, its oldest records are dropped and counted.
"""

from __future__ import annotations

import os
import re
import struct
import sys
import threading
import zlib
from bisect import bisect_right
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from edgekit.runner.errors import ResourceError
from edgekit.runner.files import BINARY, make_folder, remove_quietly, sync_folder

MOST_BYTES = 8 * 2**20
FILES = 8
"""The limit of a file is the limit of the queue divided by this."""
RETRY_S = 2.0
"""How long the thread waits after the disk has refused a write."""
GAP = 2**20
"""How many sequence numbers are skipped when a queue is opened, so that those of records that were sent but never
reached the disk are not used again."""
HEADER = struct.Struct(">QII")
SEGMENT = re.compile(r"(\d{20})\.log")
POSITION = re.compile(rb"([0-9a-f]{16}) (\d{20}) ([0-9a-f]{8})\n")


@dataclass
class _Segment:
    """A file of records."""

    path: Path
    last: int
    size: int
    is_torn: bool = False
    """Whether a write to it failed, so that its end may be garbage."""


class DiskQueue:
    """A queue of records that survives a crash. Only one process may use a folder at a time.

    Parameters
    ----------
    folder : Path
        Created if it is missing.
    most_bytes : int
        The limit for all records.
    on_put : callable
        Called after a record was put, by the same thread.

    Raises
    ------
    ResourceError
        If the folder cannot be written, or another process uses it.
    """

    def __init__(self, folder: Path, most_bytes: int = MOST_BYTES, on_put: Callable[[], object] = bool) -> None:
        self.folder, self.most_bytes, self._on_put = folder, most_bytes, on_put
        self.dropped = 0
        """Records that were dropped because the queue was full."""
        self.problem = ""
        """Why the disk refused the last write; empty after one that succeeded."""
        self._changed = threading.Condition()  # guards the records in memory; nobody holds it while using the disk
        self._disk = threading.Lock()
        self._sequences: list[int] = []
        self._records: dict[int, bytes] = {}
        self._bytes = self._next = self._done = 0
        self._position = self._lock = -1
        self._segments: list[_Segment] = []
        self._closing = False
        try:
            self._open()
        except OSError as error:
            raise ResourceError(
                f"{folder}: {error.strerror or error}; name a folder that this user may write to"
            ) from None
        self._writer = threading.Thread(target=self._write_all, name="edgerun queue", daemon=True)
        self._writer.start()

    def __len__(self) -> int:
        return len(self._records)

    def put(self, record: bytes) -> None:
        """Append a record. Returns at once; the thread writes it to the disk."""
        with self._changed:
            if len(record) > self.most_bytes // FILES:
                self.dropped += 1
                return
            self._next += 1
            self._add(self._next, record)
            while self._bytes > self.most_bytes:
                self.dropped += self._forget(self._sequences[0])
            self._changed.notify_all()
        self._on_put()

    def after(self, sequence: int) -> tuple[int, bytes] | None:
        """Return the first record behind `sequence` with its own sequence number, or None."""
        with self._changed:
            index = bisect_right(self._sequences, sequence)
            if index == len(self._sequences):
                return None
            return self._sequences[index], self._records[self._sequences[index]]

    def done(self, sequence: int) -> None:
        """Remove all records up to and including `sequence`; a restart will not bring them back."""
        with self._changed:
            self._forget(sequence)
        with self._disk:
            if sequence <= self._done:
                return
            self._done = sequence
            with suppress(OSError):  # at worst, a restart sends them again
                self._write_position()
                while len(self._segments) > 1 and self._segments[0].last <= sequence:
                    self._remove_oldest()

    def close(self, timeout_s: float = 5.0) -> None:
        """Write what is not on the disk yet, and let another process use the folder."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._writer.join(timeout_s)
        if self._writer.is_alive() or self._position < 0:  # the disk hangs, and the thread still uses the files
            return
        with self._disk, suppress(OSError):
            (position, lock), self._position, self._lock = (self._position, self._lock), -1, -1
            os.fsync(position)
            os.close(position)
            os.close(lock)

    def _add(self, sequence: int, record: bytes) -> None:
        self._sequences.append(sequence)
        self._records[sequence] = record
        self._bytes += len(record) + HEADER.size

    def _forget(self, sequence: int) -> int:
        """Remove the records up to `sequence` from memory. Returns how many there were."""
        count = bisect_right(self._sequences, sequence)
        for each in self._sequences[:count]:
            self._bytes -= len(self._records.pop(each)) + HEADER.size
        del self._sequences[:count]
        return count

    def _open(self) -> None:
        make_folder(self.folder)
        self._lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | BINARY, 0o600)
        try:
            if not _lock_now(self._lock):
                raise _in_use(self.folder)
            self._position = os.open(self.folder / "position", os.O_RDWR | os.O_CREAT | BINARY, 0o600)
            match = POSITION.fullmatch(os.pread(self._position, 64, 0))
            known = match and match[3] == b"%08x" % zlib.crc32(match[1] + match[2])
            self.id = match[1].decode() if match and known else os.urandom(8).hex()
            """Identifies this queue, and so its sequence numbers; a queue that was removed gets another one."""
            self._done = int(match[2]) if match and known else 0
            self._next = 0
            for path in sorted(each for each in self.folder.iterdir() if SEGMENT.fullmatch(each.name)):
                self._read(path)
            self._next = max(self._next, self._done)
            self._next += GAP if self._next else 0
            self._written = self._next
            self._write_position()
            os.fsync(self._position)
            sync_folder(self.folder)
        except BaseException:
            os.close(self._lock)
            raise

    def _read(self, path: Path) -> None:
        """Take the records of a file. Its end may be torn, if the machine lost power."""
        data, offset = path.read_bytes(), 0
        while len(data) - offset >= HEADER.size:
            sequence, length, checksum = HEADER.unpack_from(data, offset)
            record = data[offset + HEADER.size : offset + HEADER.size + length]
            if len(record) < length or zlib.crc32(record, sequence & 0xFFFFFFFF) != checksum:
                break
            if sequence > max(self._done, self._next):  # the end of a file that is torn may be in the next one, too
                self._add(sequence, record)
            self._next, offset = max(sequence, self._next), offset + HEADER.size + length
        self._segments.append(_Segment(path, self._next, len(data)))
        if self._next <= self._done:
            self._remove_oldest()

    def _write_position(self) -> None:
        facts = (self.id.encode(), b"%020d" % self._done)
        os.pwrite(self._position, b"%s %s %08x\n" % (*facts, zlib.crc32(b"".join(facts))), 0)

    def _remove_oldest(self) -> None:
        remove_quietly(self._segments.pop(0).path)

    def _write_all(self) -> None:
        """Write records until the queue is closed. Runs in the thread."""
        while True:
            with self._changed:
                while not (self._closing or self._unwritten()):
                    self._changed.wait()
                batch = [(each, self._records[each]) for each in self._unwritten()]
                if not batch:
                    return
            try:
                self._write(batch)
                self.problem = ""
            except OSError as error:
                self.problem = f"{self.folder}: {error.strerror or error}"
                with self._changed:
                    if self._closing or self._changed.wait_for(lambda: self._closing, RETRY_S):
                        return

    def _unwritten(self) -> list[int]:
        return self._sequences[bisect_right(self._sequences, self._written) :]

    def _write(self, batch: list[tuple[int, bytes]]) -> None:
        """Append records to the newest file, or to a new one after a restart, an error or its limit."""
        while batch:
            with self._disk:
                limit = self.most_bytes // FILES
                segment = self._segments[-1] if self._segments else None
                if segment is None or segment.is_torn or self._written != segment.last or segment.size >= limit:
                    segment = _Segment(self.folder / f"{batch[0][0]:020d}.log", self._written, 0)
                    self._segments.append(segment)
                count, size = 0, segment.size
                while count < len(batch) and (not count or size < limit):
                    size += HEADER.size + len(batch[count][1])
                    count += 1
                self._append(segment, batch[:count])
                self._drop_oldest()
            batch = batch[count:]

    def _append(self, segment: _Segment, batch: list[tuple[int, bytes]]) -> None:
        data = b"".join(
            HEADER.pack(each, len(record), zlib.crc32(record, each & 0xFFFFFFFF)) + record for each, record in batch
        )
        is_new = not segment.size
        segment.is_torn = True
        try:
            handle = os.open(segment.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | BINARY, 0o600)
            with open(handle, "wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            os.fsync(self._position)
            if is_new:
                sync_folder(self.folder)
        except OSError:
            if is_new:
                self._segments.remove(segment)
                remove_quietly(segment.path)
            raise
        segment.size, segment.is_torn = segment.size + len(data), False
        segment.last = self._written = batch[-1][0]

    def _drop_oldest(self) -> None:
        while len(self._segments) > 1 and sum(each.size for each in self._segments) > self.most_bytes:
            last = self._segments[0].last
            self._remove_oldest()
            with self._changed:
                self.dropped += self._forget(last)


def check_unused(folder: Path) -> None:
    """Raise ResourceError if a process uses the queue in a folder."""
    lock = folder / "lock"
    if lock.exists():
        handle = os.open(lock, os.O_RDWR | BINARY)
        try:
            if not _lock_now(handle):
                raise _in_use(folder)
        finally:
            os.close(handle)


def _in_use(folder: Path) -> ResourceError:
    return ResourceError(f"{folder}: this queue is in use; end the process, or leave out the sink, that has it")


def _lock_now(handle: int) -> bool:
    """Lock a file until this process ends, unless another process has locked it."""
    if sys.platform == "win32":
        raise NotImplementedError("Windows has no such locks")
    import fcntl

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
