"""Upload of a file over a connection that may break.

Bytes that the device has acknowledged are not sent again. The device's offset is queried only after a break.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from edgekit.fleet.devices import shell_text
from edgekit.fleet.devices.connection import Connection, Process
from edgekit.fleet.devices.device_errors import ConnectionCut, DeviceError
from edgekit.fleet.devices.session import DeviceSession
from edgekit.runner.errors import bounded_recursion

PIECE_BYTES = 8 << 10
STALL_S = 60.0
"""If a device acknowledges nothing for this long, the connection counts as broken."""
MOST_ANSWER_BYTES = 1 << 20
MAX_FRUITLESS, PAUSE_S = 5, 0.2
"""After more than this many attempts in a row that succeed without progress, the device counts as faulty. From one
attempt to the next, the pause grows by `PAUSE_S`."""
ANOTHER_OFFSET = 4
"""Exit code of `edgerun receive` for input that begins at another offset."""


Command = Callable[[int | None, int], Sequence[str]]
"""A function of an offset and an interval in bytes. It returns a command that receives a file from this offset on, and
acknowledges data at this interval. For the offset None, the command only reports its offset."""


@dataclass(frozen=True)
class UploadPace:
    """Bytes that may be in flight, and bytes between two acknowledgements."""

    window: int
    acknowledge: int


STABLE_PACE, UNSTABLE_PACE = UploadPace(64 << 10, 32 << 10), UploadPace(16 << 10, 8 << 10)
"""For a connection that has not broken yet, and for one that has. Bytes in flight are lost if a connection breaks."""


async def send_file(
    session: DeviceSession,
    data: bytes,
    command: Command,
    offset: int = 0,
    on_offset: Callable[[int], object] = lambda offset: None,
) -> None:
    """Send a file to a device that has `offset` bytes of it. Raises DeviceError if the device does not accept it."""
    best, fruitless, is_offset_known = offset, 0, True
    while True:
        connection = await session.connection()
        pace = UNSTABLE_PACE if session.cuts else STABLE_PACE
        try:
            if is_offset_known:
                offset, stored = await _stream(connection, command, data, offset, pace, on_offset)
            else:
                offset, stored = await _ask(connection, command, len(data))
        except _Cut as error:
            if error.offset > best:
                best, fruitless = error.offset, 0
                session.progress()
            is_offset_known = False
            await session.cut(error)
            continue
        if stored:
            session.progress()
            on_offset(len(data))
            return
        if offset > best:
            best, fruitless = offset, 0
            session.progress()
        elif is_offset_known:
            fruitless += 1
            await asyncio.sleep(PAUSE_S * (fruitless - 1))
        is_offset_known = True
        if fruitless > MAX_FRUITLESS:
            raise DeviceError(f"accepts nothing beyond {best:,} of {len(data):,} bytes; check that device", 7)


class _Cut(ConnectionCut):
    """A broken connection; `offset` is the last acknowledged one."""

    def __init__(self, error: ConnectionCut, offset: int) -> None:
        super().__init__(str(error))
        self.offset = offset


async def _ask(connection: Connection, command: Command, size: int) -> tuple[int, bool]:
    try:
        answer = await connection.run(command(None, 0))
    except ConnectionCut as error:
        raise _Cut(error, 0) from None
    if answer.code not in (0, ANOTHER_OFFSET):
        answer.check()
    states = [state for line in answer.stdout.splitlines() if (state := _parsed(line, size))]
    if not states:
        raise DeviceError("did not report how much has arrived; check that device", 8)
    return states[-1]


async def _stream(
    connection: Connection,
    command: Command,
    data: bytes,
    offset: int,
    pace: UploadPace,
    on_offset: Callable[[int], object],
) -> tuple[int, bool]:
    """Send from an offset. Returns the offset reached, and whether the file is complete."""
    try:
        process = await connection.start(command(offset, pace.acknowledge))
    except ConnectionCut as error:
        raise _Cut(error, offset) from None
    progress = _Progress(offset, len(data), on_offset)
    sending = asyncio.create_task(_feed(process, data, pace, progress))
    errors = asyncio.create_task(process.read_stderr())
    try:
        await _follow(process, progress)
        async with asyncio.timeout(STALL_S):
            code = await process.code()
        if code not in (0, ANOTHER_OFFSET):
            raise DeviceError(shell_text.last_line(await errors) or f"ended with exit code {code}", code)
    except TimeoutError:
        raise _Cut(
            ConnectionCut(f"{connection.host.address}: nothing arrived for {STALL_S:g} s"), progress.offset
        ) from None
    except ConnectionCut as error:
        raise _Cut(error, progress.offset) from None
    finally:
        sending.cancel()
        errors.cancel()
        process.close()
    return progress.offset, progress.stored


class _Progress:
    """What has been acknowledged so far."""

    def __init__(self, offset: int, size: int, on_offset: Callable[[int], object]) -> None:
        self.offset, self.size, self.stored = offset, size, False
        self._on_offset = on_offset
        self.more = asyncio.Event()

    def take(self, line: bytes) -> None:
        """Handle one line of output of the device."""
        state = _parsed(line, self.size)
        if state:
            self.offset, self.stored = state
            self._on_offset(self.offset)
            self.more.set()


async def _feed(process: Process, data: bytes, pace: UploadPace, progress: _Progress) -> None:
    """Write the data, but no further ahead of the acknowledgements than the pace allows."""
    position = progress.offset
    while position < len(data):
        if progress.offset > position:  # the device had it already, or another command sends it
            return
        room = progress.offset + pace.window - position
        if room <= 0:
            progress.more.clear()
            await progress.more.wait()
            continue
        piece = data[position : position + min(room, PIECE_BYTES)]
        process.write(piece)
        await process.drain()
        position += len(piece)
    process.write_eof()


async def _follow(process: Process, progress: _Progress) -> None:
    """Read the device's answers to their end. Lines that a login prints between them are skipped."""
    rest, size = b"", 0
    while True:
        async with asyncio.timeout(STALL_S):
            received = await process.read()
        if not received:
            return
        size += len(received)
        if size > MOST_ANSWER_BYTES:
            raise DeviceError("sends an endless answer; check that device", 8)
        *lines, rest = (rest + received).split(b"\n")
        for line in lines:
            progress.take(line)


def _parsed(line: bytes, size: int) -> tuple[int, bool] | None:
    """Return (offset, whether it is stored) of a line, or None for any other line."""
    if not line.startswith(b"{") or len(line) > 4096:
        return None
    try:
        with bounded_recursion():
            value = json.loads(line)
        offset, stored = value["offset"], value["stored"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    fits = isinstance(offset, int) and not isinstance(offset, bool) and 0 <= offset <= size and isinstance(stored, bool)
    return (offset, stored) if fits else None
