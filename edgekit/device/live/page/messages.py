"""Messages from the loop's process to the page's: a pickled dict, and bytes such as the pixels of a picture.

Only the parent writes to this pipe. What the child says, which talks with the network, is JSON.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Iterator
from typing import IO, Any

LENGTHS = struct.Struct(">II")


def write_message(pipe: IO[bytes], fields: dict[str, Any], payload: Any = b"") -> None:
    """Write a message. `payload` is bytes or an array of bytes."""
    head = pickle.dumps(fields, protocol=4)
    body = memoryview(payload).cast("B") if len(payload) else memoryview(b"")
    pipe.write(LENGTHS.pack(len(head), len(body)) + head)
    pipe.flush()
    if len(body):
        pipe.write(body)
        pipe.flush()


def read_messages(pipe: IO[bytes]) -> Iterator[tuple[dict[str, Any], bytes]]:
    """Yield messages with their payloads until the pipe ends."""
    while True:
        lengths = pipe.read(LENGTHS.size)
        if len(lengths) < LENGTHS.size:
            return
        head_length, body_length = LENGTHS.unpack(lengths)
        head, body = pipe.read(head_length), pipe.read(body_length)
        if len(body) < body_length or len(head) < head_length:
            return
        yield pickle.loads(head), body
