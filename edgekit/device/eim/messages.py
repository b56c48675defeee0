"""The JSON of the protocol: objects that follow one another without an agreed separator.

The Python client sends bare objects, and the Node.js and Rust clients add a newline, so an object ends with its last
brace. Answers end with a newline and a NUL, because some clients read up to the one and some up to the other. The
Python and Node.js clients count the braces of an answer even inside texts, so texts contain them only as escapes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from edgekit.runner.errors import InputError, bounded_recursion

END = b"\n\0"
BETWEEN = b" \t\r\n\0"
TOKENS = (b"{", b"}", b'"', b"\\")
TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')
ID = re.compile(rb'"id"\s*:\s*(\d{1,18})\b')


class SyntaxFault(InputError):
    """A message is not JSON."""


class MessageSplitter:
    """Finds the objects in a stream of bytes. Objects of more than `most_bytes` are refused."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes, self._buffer = most_bytes, bytearray()
        self._start_object()

    def split(self, data: bytes) -> Iterator[bytes]:
        """Add bytes, and yield the objects that they complete.

        Raises InputError if an object is too long or something else stands between objects, after which the stream
        cannot be read any further.
        """
        self._buffer += data
        while True:
            if not self._depth:
                self._buffer = self._buffer.lstrip(BETWEEN)
                if self._buffer and self._buffer[:1] != b"{":
                    raise InputError(f"the message begins with {bytes(self._buffer[:20])!r}; send a JSON object")
            end = self._find_end()
            if (end or len(self._buffer)) > self._most_bytes:
                raise InputError(f"the message has more than {self._most_bytes} bytes, and no sample needs as many")
            if not end:
                return
            message = bytes(self._buffer[:end])
            del self._buffer[:end]
            self._start_object()
            yield message

    def _start_object(self) -> None:
        self._depth = self._position = 0
        self._is_text, self._escaped = False, -1

    def _find_end(self) -> int:
        """Return the length of the object at the beginning of the buffer, or 0 if its end has not arrived."""
        for place, token in self._tokens():
            if place == self._escaped:
                continue
            if token == b'"':
                self._is_text = not self._is_text
            elif token == b"\\":
                self._escaped = place + 1
            elif not self._is_text:
                self._depth += 1 if token == b"{" else -1
                if self._depth == 0:
                    return place + 1
        self._position = len(self._buffer)
        return 0

    def _tokens(self) -> Iterator[tuple[int, bytes]]:
        """Yield the tokens that have not been read, with their places.

        A sample is a list of numbers without any token, which `find` passes a hundred times faster than a regular
        expression.
        """
        places = {token: self._buffer.find(token, self._position) for token in TOKENS}
        while found := [(place, token) for token, place in places.items() if place >= 0]:
            place, token = min(found)
            yield place, token
            places[token] = self._buffer.find(token, place + 1)


def parse(data: bytes) -> dict[str, Any]:
    """Parse an object. NaN and infinity, which the Python client can send, are parsed. Raises SyntaxFault."""
    try:
        with bounded_recursion():
            parsed: dict[str, Any] = json.loads(data.decode("utf-8"))
        return parsed
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise SyntaxFault(f"the message is not JSON: {reason}") from None


def find_id(data: bytes) -> int | None:
    """Return the `id` of a message that cannot be parsed, so that its client need not wait until it gives up."""
    match = ID.search(data)
    return int(match[1]) if match else None


def encode(answer: dict[str, Any]) -> bytes:
    """Return an answer as the bytes to send."""
    text = json.dumps(answer, allow_nan=False)
    return TEXT.sub(lambda match: match[0].replace("{", "\\u007b").replace("}", "\\u007d"), text).encode() + END
