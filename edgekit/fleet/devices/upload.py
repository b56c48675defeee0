"""A file over a line that is cut: what was acknowledged is kept, and the offset is asked for only after a cut."""

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
"""A device that acknowledges nothing for so long is as good as cut off."""
MOST_ANSWER_BYTES = 1 << 20
MAX_FRUITLESS, PAUSE_S = 5, 0.2
"""Attempts in a row that end well without a byte more: then the device says one thing and does another."""
ANOTHER_OFFSET = 4
"""Exit code of `edgerun receive` for input that begins elsewhere."""


Command = Callable[[int | None, int], Sequence[str]]
"""The words that receive a file from an offset, None: that ask for the offset; an answer every so many bytes."""


@dataclass(frozen=True)
class UploadPace:
    """Bytes that may be on their way, and bytes between two answers."""

    window: int
    acknowledge: int


STABLE_PACE, UNSTABLE_PACE = UploadPace(64 << 10, 32 << 10), UploadPace(16 << 10, 8 << 10)
"""On a line that has not been cut yet, and on one that was: what is on its way is lost with the line."""


async def send_file(
    line: DeviceSession,
    data: bytes,
    command: Command,
    offset: int = 0,
    on_offset: Callable[[int], object] = lambda offset: None,
) -> None:
    """Bring a file to a device, `offset` bytes of which are there; DeviceError where it does not take it."""
    best, fruitless, known = offset, 0, True
    while True:
        connection = await line.connection()
        pace = UNSTABLE_PACE if line.cuts else STABLE_PACE
        try:
            if known:
                offset, stored = await _stream(connection, command, data, offset, pace, on_offset)
            else:
                offset, stored = await _ask(connection, command, len(data))
        except _Cut as error:
            if error.offset > best:
                best, fruitless = error.offset, 0
                line.progress()
            known = False
            await line.cut(error)
            continue
        if stored:
            line.progress()
            on_offset(len(data))
            return
        if offset > best:
            best, fruitless = offset, 0
            line.progress()
        elif known:
            fruitless += 1
            await asyncio.sleep(PAUSE_S * (fruitless - 1))
        known = True
        if fruitless > MAX_FRUITLESS:
            raise DeviceError(f"takes nothing beyond {best:,} of {len(data):,} bytes; look at that device", 7)


class _Cut(ConnectionCut):
    """`offset` is the last one that was acknowledged."""

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
    found = [told for line in answer.out.splitlines() if (told := _parsed(line, size))]
    if not found:
        raise DeviceError("does not say how much has arrived; look at that device", 8)
    return found[-1]


async def _stream(
    connection: Connection,
    command: Command,
    data: bytes,
    offset: int,
    pace: UploadPace,
    on_offset: Callable[[int], object],
) -> tuple[int, bool]:
    """Send from an offset; what has arrived then, and whether the file is in its place."""
    try:
        process = await connection.start(command(offset, pace.acknowledge))
    except ConnectionCut as error:
        raise _Cut(error, offset) from None
    state = _Progress(offset, len(data), on_offset)
    sending = asyncio.create_task(_feed(process, data, pace, state))
    said = asyncio.create_task(process.read_said())
    try:
        await _follow(process, state)
        async with asyncio.timeout(STALL_S):
            code = await process.code()
        if code not in (0, ANOTHER_OFFSET):
            raise DeviceError(shell_text.last_line(await said) or f"ended with exit code {code}", code)
    except TimeoutError:
        raise _Cut(
            ConnectionCut(f"{connection.host.address}: nothing arrived for {STALL_S:g} s"), state.offset
        ) from None
    except ConnectionCut as error:
        raise _Cut(error, state.offset) from None
    finally:
        sending.cancel()
        said.cancel()
        process.close()
    return state.offset, state.stored


class _Progress:
    """What has been acknowledged so far."""

    def __init__(self, offset: int, size: int, on_offset: Callable[[int], object]) -> None:
        self.offset, self.size, self.stored = offset, size, False
        self._on_offset = on_offset
        self.more = asyncio.Event()

    def take(self, line: bytes) -> None:
        """One line of the device's."""
        told = _parsed(line, self.size)
        if told:
            self.offset, self.stored = told
            self._on_offset(self.offset)
            self.more.set()


async def _feed(process: Process, data: bytes, pace: UploadPace, state: _Progress) -> None:
    """Write, no further ahead of what was acknowledged than the pace allows."""
    at = state.offset
    while at < len(data):
        if state.offset > at:  # it was there already, or another command brings it
            return
        room = state.offset + pace.window - at
        if room <= 0:
            state.more.clear()
            await state.more.wait()
            continue
        piece = data[at : at + min(room, PIECE_BYTES)]
        process.write(piece)
        await process.drain()
        at += len(piece)
    process.write_eof()


async def _follow(process: Process, state: _Progress) -> None:
    """Read answers to their end, whatever a login prints between them."""
    rest, size = b"", 0
    while True:
        async with asyncio.timeout(STALL_S):
            found = await process.read()
        if not found:
            return
        size += len(found)
        if size > MOST_ANSWER_BYTES:
            raise DeviceError("answers without end; look at that device", 8)
        *lines, rest = (rest + found).split(b"\n")
        for line in lines:
            state.take(line)


def _parsed(line: bytes, size: int) -> tuple[int, bool] | None:
    """(offset, whether it is stored) of a line; None where it is none of these lines."""
    if not line.startswith(b"{") or len(line) > 4096:
        return None
    try:
        with bounded_recursion():
            found = json.loads(line)
        offset, stored = found["offset"], found["stored"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    fits = isinstance(offset, int) and not isinstance(offset, bool) and 0 <= offset <= size and isinstance(stored, bool)
    return (offset, stored) if fits else None
