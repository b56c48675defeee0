"""WAV headers within a stream of bytes: arecord and ffmpeg write one in front, and a second recorder one in the middle.

Bytes are given on as sound only once they cannot begin a header. A header is RIFF, a size and WAVE: eight
fixed bytes, which no sound has by chance. The size of the sound may be unknown, as recorders write it into a pipe.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Union

from edgekit.runner.errors import InputError
from edgekit.runner.inputs import wav

RIFF, WAVE = b"RIFF", b"WAVE"
HEAD_BYTES = 12
"""RIFF, four bytes of size, and WAVE."""
LARGEST_HEADER_BYTES = 1 << 16


@dataclass(frozen=True)
class Header:
    """What the sound behind it is; `data_bytes` is None where the header does not know."""

    code: int
    channels: int
    rate_hz: int
    bits: int
    data_bytes: int | None

    @property
    def form(self) -> tuple[int, int, int, int]:
        """Coding, channels, rate and bits."""
        return self.code, self.channels, self.rate_hz, self.bits


Part = Union[bytes, Header]


class Headers:
    """Parts a stream of bytes into headers and sound."""

    def __init__(self) -> None:
        self._waiting = b""
        self._left: int | None = None  # bytes of sound that the header promised
        self._behind = False  # whether the promised sound is over, and other chunks follow

    def push(self, data: bytes) -> Iterator[Part]:
        """What is certain by now, in order."""
        self._waiting += data
        while self._waiting:
            step = self._other_chunk() if self._behind else self._sound_or_header()
            if step is None:
                return
            if step:
                yield step

    def finish(self) -> Iterator[Part]:
        """What no later byte can change; InputError where the end is no end."""
        rest, self._waiting = self._waiting, b""
        if self._behind:
            return
        if len(rest) >= HEAD_BYTES and _may_begin(rest[:HEAD_BYTES]):
            raise InputError("the stream ended in the middle of a WAV header")
        if rest:
            yield rest if self._left is None else rest[: self._left]
        if self._left is not None and self._left > len(rest):
            raise InputError(
                f"the stream ended early: its WAV header says that {self._left - len(rest)} more bytes of sound come"
            )

    def _sound_or_header(self) -> Part | None:
        """The next part; empty bytes where a state has changed, None where more must come."""
        if self._left == 0:
            self._left, self._behind = None, True
            return b""
        place = _place(self._waiting)
        if place == 0:
            return self._header()
        size = place if self._left is None else min(place, self._left)
        sound, self._waiting = self._waiting[:size], self._waiting[size:]
        if self._left is not None:
            self._left -= size
        return sound

    def _header(self) -> Header | None:
        """The header at the beginning, once all of it is there."""
        data = self._waiting
        if len(data) < HEAD_BYTES:
            return None
        form: tuple[int, int, int, int] | None = None
        place = 12
        while place + 8 <= len(data):
            name, length = data[place : place + 4], struct.unpack("<I", data[place + 4 : place + 8])[0]
            if name == b"data" and form is not None:
                known = 0 < length < wav.UNKNOWN_SIZE
                self._waiting, self._left = data[place + 8 :], length if known else None
                return Header(*form, length if known else None)
            end = place + 8 + length + (length & 1)
            if end > LARGEST_HEADER_BYTES:
                raise InputError(f"the stream: a WAV header of more than {LARGEST_HEADER_BYTES:,} bytes; is it one?")
            if len(data) < end:
                return None
            if name == b"fmt ":
                form = wav.parse_format("the stream", data[place + 8 : place + 8 + length])
            place = end
        return None

    def _other_chunk(self) -> Part | None:
        """Behind the promised sound: skip what is no sound, up to the next header."""
        data = self._waiting
        if data[:1] == b"\0":  # chunks begin at even places
            self._waiting = data[1:]
            return b""
        if len(data) < 8:
            return None
        if _may_begin(data[:HEAD_BYTES]):
            if len(data) < HEAD_BYTES:
                return None
            self._behind = False
            return b""
        end = 8 + struct.unpack("<I", data[4:8])[0]
        if end > LARGEST_HEADER_BYTES:
            raise InputError("the stream goes on behind the sound that its WAV header promised; it is no sound")
        if len(data) < end:
            return None
        self._waiting = data[end:]
        return b""


def _place(data: bytes) -> int:
    """Where the first header may begin: the end where none does."""
    place = data.find(RIFF)
    while place >= 0:
        if _may_begin(data[place : place + HEAD_BYTES]):
            return place
        place = data.find(RIFF, place + 1)
    cut = next((size for size in (3, 2, 1) if data.endswith(RIFF[:size])), 0)
    return len(data) - cut


def _may_begin(head: bytes) -> bool:
    """Whether these up to 12 bytes are a header's, as far as they go."""
    return head[:4] == RIFF[: len(head)] and head[8:] == WAVE[: max(0, len(head) - 8)]
