"""The parts of an HTTP request: its headers, its body, the memory that it may use, and a client that may disconnect.

Large bodies are kept in memory pages of their own, which return to the system once the request is answered. On the
heap, bodies that grow side by side would cause fragmentation, and a worker would hold twice the memory that it needs.
"""

from __future__ import annotations

import asyncio
import hmac
import mmap
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Union

from edgekit.serve.batcher import Answer
from edgekit.serve.errors import ClientDisconnected, RequestError

Headers = Mapping[bytes, bytes]

DEADLINE_HEADER = b"x-request-timeout-ms"
HEADER_LENGTH = b"inference-header-content-length"
MAX_DIGITS = 18
"""Numbers in headers are cut off after this many digits."""


def check_token(tokens: tuple[bytes, ...], headers: Headers) -> None:
    """Raise RequestError (401) unless the request has one of the tokens.

    All tokens are compared, each in constant time.
    """
    kind, _, token = headers.get(b"authorization", b"").partition(b" ")
    matches = [hmac.compare_digest(token.strip(), each) for each in tokens]
    if kind.lower() != b"bearer" or not any(matches):
        raise RequestError(401, "Authorization: send Bearer and a token of this server")


def header_bytes(headers: Headers) -> int | None:
    """Return the length of the JSON before the binary tensors.

    The result is None if the whole body is JSON, and 0 if the body has no JSON at all. Raises RequestError (400) if the
    header is not a number.
    """
    value = headers.get(HEADER_LENGTH)
    if value is None:
        return None
    if not value.isdigit():
        raise RequestError(400, f"Inference-Header-Content-Length: got {value.decode('latin-1')}; use a whole number")
    return int(value[:MAX_DIGITS])


def check_json(length: int, limit_bytes: int) -> None:
    """Raise RequestError (413) if the JSON before the binary tensors is longer than `limit_bytes`."""
    if length > limit_bytes:
        raise RequestError(
            413, f"Inference-Header-Content-Length: got {length} bytes of JSON, but at most {limit_bytes} are accepted"
        )


def deadline_ms(headers: Headers) -> float:
    """Return the client's deadline in ms after the request's arrival, or 0 if it sets none.

    Raises RequestError (400) if the header is not a positive number.
    """
    value = headers.get(DEADLINE_HEADER)
    if value is None:
        return 0.0
    try:
        milliseconds = float(value)
    except ValueError:
        milliseconds = -1.0
    if not 0 < milliseconds < 1e9:
        raise RequestError(400, f"X-Request-Timeout-Ms: got {value.decode('latin-1')}; use milliseconds above 0")
    return milliseconds


def check_body(headers: Headers, limit_bytes: int, unit: str = "bytes") -> None:
    """Raise RequestError (413) if Content-Length is above `limit_bytes`, and (415) if the body is compressed."""
    length = headers.get(b"content-length", b"0")[:MAX_DIGITS]
    if length.isdigit() and int(length) > limit_bytes:
        raise RequestError(413, f"body: got {int(length)} {unit}, but at most {limit_bytes} are accepted")
    coding = headers.get(b"content-encoding", b"identity")
    if coding.lower() != b"identity":
        raise RequestError(415, f"Content-Encoding: got {coding.decode('latin-1')}; send the body as it is")


MIN_MMAP_BYTES = 1 << 20
"""Bodies of this size and larger get memory pages of their own."""

Body = Union[bytes, bytearray, memoryview]


class BodyBuffer:
    """Collects the pieces of a body without ever holding it twice."""

    def __init__(self) -> None:
        self._small = bytearray()
        self._pages: mmap.mmap | None = None
        self.size = 0

    def add(self, piece: bytes) -> None:
        """Append a piece."""
        size = self.size + len(piece)
        if self._pages is None and size <= MIN_MMAP_BYTES:
            self._small += piece
        else:
            self._grow(size)[self.size : size] = piece
        self.size = size

    def whole(self) -> Body:
        """Return the whole body. No piece may be added afterwards."""
        return self._small if self._pages is None else memoryview(self._pages)[: self.size]

    def _grow(self, size: int) -> mmap.mmap:
        """Make room for twice `size` bytes if `size` bytes do not fit, so that the buffer rarely has to grow.

        The unused half costs no memory, because the system provides only pages that are written to.
        """
        if self._pages is None:
            self._pages = mmap.mmap(-1, 2 * size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            self._pages[: self.size] = bytes(self._small)
            self._small = bytearray()
        elif size > len(self._pages):
            self._pages.resize(2 * size)
        return self._pages


BUDGET_BODIES, MIN_BUDGET_BYTES = 4, 64 << 20
"""The budget allows this many bodies of the largest size, but is never smaller than this many bytes."""
SMALL_BYTES = 64 << 10
"""Requests that hold no more than this are never refused.

On the default number of HTTP connections, they take at most 64 MB together.
"""
RETRY_S = 1


class MemoryBudget:
    """The memory that all requests of a worker may use together.

    One request may hold at most half of what the others leave, so that a few large requests never lock out small ones.
    """

    def __init__(self, most_body_bytes: int) -> None:
        self.max_bytes = max(MIN_BUDGET_BYTES, BUDGET_BODIES * most_body_bytes)
        self.used_bytes = 0


class Reservation:
    """The part of a budget that one request holds, from its first `take` to its `release`."""

    __slots__ = ("_budget", "_bytes")

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget, self._bytes = budget, 0

    def take(self, count: int) -> None:
        """Reserve `count` more bytes.

        Raises RequestError (503) if the budget does not allow it. A request that is alone is never refused.
        """
        budget, held_bytes = self._budget, self._bytes + count
        others_bytes = budget.used_bytes - self._bytes
        if held_bytes > SMALL_BYTES and others_bytes and 2 * held_bytes > budget.max_bytes - others_bytes:
            raise RequestError(
                503,
                f"the requests in progress take {budget.used_bytes >> 20} MB of {budget.max_bytes >> 20} MB; send "
                "large requests one after another",
                RETRY_S,
            )
        self._bytes = held_bytes
        budget.used_bytes += count

    def give(self, count: int) -> None:
        """Return `count` bytes to the budget."""
        self._bytes -= count
        self._budget.used_bytes -= count

    def release(self) -> None:
        """Return everything that the request holds."""
        self._budget.used_bytes -= self._bytes
        self._bytes = 0


Receive = Callable[[], Awaitable[dict[str, Any]]]


async def await_or_disconnect(future: asyncio.Future[Answer], receive: Receive | None) -> Answer:
    """Wait for an answer, cancelling the job if the client disconnects.

    Raises
    ------
    ClientDisconnected
        The connection closed first. The job has been cancelled.
    """
    if receive is None:
        return await future
    watcher = asyncio.ensure_future(receive())
    watcher.add_done_callback(lambda _: future.cancel())
    try:
        return await future
    except asyncio.CancelledError:
        if watcher.done() and not watcher.cancelled():
            raise ClientDisconnected from None
        raise
    finally:
        watcher.cancel()
