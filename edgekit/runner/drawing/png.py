"""PNG (ISO/IEC 15948), written by zlib: 8 bits a channel, RGB, each row as its difference to the one above."""

from __future__ import annotations

import struct
import zlib

import numpy as np

SIGNATURE = b"\x89PNG\r\n\x1a\n"
UP = 2
"""The filter of a row: what is stored is the difference to the row above, modulo 256."""
LEVEL = 4
"""Of zlib: a photograph hardly gets smaller by more."""


def encode(picture: np.ndarray) -> bytes:
    """The file of a picture uint8 (height, width, 3)."""
    height, width, _ = picture.shape
    rows = picture.reshape(height, -1)
    filtered = np.full((height, rows.shape[1] + 1), UP, np.uint8)
    filtered[0, 1:] = rows[0]
    np.subtract(rows[1:], rows[:-1], out=filtered[1:, 1:])
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = zlib.compress(filtered.tobytes(), LEVEL)
    return SIGNATURE + _chunk(b"IHDR", header) + _chunk(b"IDAT", body) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(data, zlib.crc32(kind)))
