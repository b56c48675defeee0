"""Films of JPEG pictures in an AVI file, which needs no codec to write: VLC, mpv and ffmpeg play it.

Source: Microsoft, "AVI RIFF File Reference" (OpenDML is not needed for less than 1 GB).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

HAS_INDEX, IS_KEY_FRAME = 0x10, 0x10
START_OF_FRAME = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}
"""JPEG markers that the size of the picture follows."""


def make_film(pictures: Sequence[bytes], seconds: float) -> bytes:
    """Return a film of JPEG files of one size.

    Parameters
    ----------
    pictures : sequence of bytes
        At least one.
    seconds : float
        How long it lasts. All pictures are shown equally long.
    """
    width, height = picture_size(pictures[0])
    chunks = [_chunk(b"00dc", picture) for picture in pictures]
    index, offset = [], 4
    for chunk, picture in zip(chunks, pictures):
        index.append(struct.pack("<4sIII", b"00dc", IS_KEY_FRAME, offset, len(picture)))
        offset += len(chunk)
    count, largest = len(pictures), max(map(len, pictures))
    picture_us = max(1, round(1e6 * seconds / count))
    main = (picture_us, 0, 0, HAS_INDEX, count, 0, 1, largest, width, height, 0, 0, 0, 0)
    stream = (0, 0, 0, 0, picture_us, 1_000_000, 0, count, largest, 0xFFFFFFFF, 0, 0, 0, width, height)
    bitmap = (40, width, height, 1, 24, b"MJPG", 3 * width * height, 0, 0, 0, 0)
    header = _list(
        b"hdrl",
        _chunk(b"avih", struct.pack("<14I", *main)),
        _list(
            b"strl",
            _chunk(b"strh", b"vidsMJPG" + struct.pack("<IHHIIIIIIII4H", *stream)),
            _chunk(b"strf", struct.pack("<IiiHH4sIiiII", *bitmap)),
        ),
    )
    content = b"AVI " + header + _list(b"movi", *chunks) + _chunk(b"idx1", b"".join(index))
    return _chunk(b"RIFF", content)


def picture_size(jpeg: bytes) -> tuple[int, int]:
    """Return the width and height of a JPEG file. Raises ValueError if it is none."""
    place = 2
    while place + 9 <= len(jpeg) and jpeg[place] == 0xFF:
        marker, length = jpeg[place + 1], int.from_bytes(jpeg[place + 2 : place + 4], "big")
        if marker in START_OF_FRAME:
            height, width = struct.unpack_from(">HH", jpeg, place + 5)
            return width, height
        place += 2 + length
    raise ValueError("a picture is no JPEG file")


def _list(name: bytes, *chunks: bytes) -> bytes:
    return _chunk(b"LIST", name + b"".join(chunks))


def _chunk(name: bytes, data: bytes) -> bytes:
    return name + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2)
