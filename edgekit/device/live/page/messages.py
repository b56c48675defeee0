"""Messages from the loop's process to the page's: a JSON object, and arrays such as the pixels of a picture."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator, Sequence
from typing import IO, Any

import numpy as np

LENGTH = struct.Struct(">I")


def write_message(pipe: IO[bytes], fields: dict[str, Any], arrays: Sequence[np.ndarray] = ()) -> None:
    """Write a message."""
    described = [[each.dtype.str, list(each.shape)] for each in arrays]
    head = json.dumps({**fields, "arrays": described}, allow_nan=False).encode()
    pipe.write(LENGTH.pack(len(head)) + head)
    pipe.flush()
    for each in arrays:
        pipe.write(np.ascontiguousarray(each).data.cast("B"))
        pipe.flush()


def read_messages(pipe: IO[bytes]) -> Iterator[tuple[dict[str, Any], list[np.ndarray]]]:
    """Yield messages with their arrays until the pipe ends."""
    while len(length := pipe.read(LENGTH.size)) == LENGTH.size:
        fields = json.loads(pipe.read(*LENGTH.unpack(length)))
        arrays = []
        for kind, shape in fields.pop("arrays"):
            data = pipe.read(np.dtype(kind).itemsize * math.prod(shape))
            arrays.append(np.frombuffer(data, kind).reshape(shape))
        yield fields, arrays
