"""What one HTTP request brings and takes: its headers, its body, its share of memory, and a client that may hang up.

Bodies that grow side by side leave holes in the allocator, and a worker kept twice what its bodies took. So a large
body has pages of its own, which go back to the system when it is answered.
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

DEADLINE = b"x-request-timeout-ms"
HEADER_LENGTH = b"inference-header-content-length"
LONGEST_NUMBER = 18
"""Digits of a number that is read."""


def check_token(tokens: tuple[bytes, ...], headers: Headers) -> None:
    """RequestError (401) unless one of the tokens is given; all are compared, in constant time."""
    kind, _, token = headers.get(b"authorization", b"").partition(b" ")
    right = [hmac.compare_digest(token.strip(), each) for each in tokens]
    if kind.lower() != b"bearer" or not any(right):
        raise RequestError(401, "Authorization: give Bearer and a token of this server")


def header_bytes(headers: Headers) -> int | None:
    """Length of the JSON before binary tensors; None where all is JSON, 0 where nothing is."""
    value = headers.get(HEADER_LENGTH)
    if value is None:
        return None
    if not value.isdigit():
        raise RequestError(400, f"Inference-Header-Content-Length: got {value.decode('latin-1')}; use a whole number")
    return int(value[:LONGEST_NUMBER])


def check_json(length: int, most: int) -> None:
    """RequestError (413) where the JSON before binary tensors is longer than `most` bytes."""
    if length > most:
        raise RequestError(
            413, f"Inference-Header-Content-Length: got {length} bytes of JSON, at most {most} are taken"
        )


def deadline_ms(headers: Headers) -> float:
    """What the client grants, in ms from the request's arrival; 0 where it says nothing."""
    value = headers.get(DEADLINE)
    if value is None:
        return 0.0
    try:
        found = float(value)
    except ValueError:
        found = -1.0
    if not 0 < found < 1e9:
        raise RequestError(400, f"X-Request-Timeout-Ms: got {value.decode('latin-1')}; use milliseconds above 0")
    return found


def check_body(headers: Headers, most: int, what: str = "bytes") -> None:
    """RequestError (413) where the body is announced to be longer than `most` bytes, (415) where it is compressed."""
    stated = headers.get(b"content-length", b"0")[:LONGEST_NUMBER]
    if stated.isdigit() and int(stated) > most:
        raise RequestError(413, f"body: got {int(stated)} {what}, at most {most} are taken")
    coding = headers.get(b"content-encoding", b"identity")
    if coding.lower() != b"identity":
        raise RequestError(415, f"Content-Encoding: got {coding.decode('latin-1')}; send the body as it is")


OWN_PAGES_BYTES = 1 << 20
"""From here on a body has them."""

Body = Union[bytes, bytearray, memoryview]


class BodyBuffer:
    """Pieces, put together without being there twice."""

    def __init__(self) -> None:
        self._small = bytearray()
        self._pages: mmap.mmap | None = None
        self.size = 0

    def add(self, piece: bytes) -> None:
        """The next piece."""
        size = self.size + len(piece)
        if self._pages is None and size <= OWN_PAGES_BYTES:
            self._small += piece
        else:
            self._grow(size)[self.size : size] = piece
        self.size = size

    def whole(self) -> Body:
        """All of it; nothing may be added any more."""
        return self._small if self._pages is None else memoryview(self._pages)[: self.size]

    def _grow(self, size: int) -> mmap.mmap:
        """Pages for so many bytes: twice as many as there were, of which the system gives only those that are used."""
        if self._pages is None:
            self._pages = mmap.mmap(-1, 2 * size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            self._pages[: self.size] = bytes(self._small)
            self._small = bytearray()
        elif size > len(self._pages):
            self._pages.resize(2 * size)
        return self._pages


BODIES, LEAST_BYTES = 4, 64 << 20
"""The budget is of so many of the largest bodies, and no less than this."""
SMALL_BYTES = 64 << 10
"""A request that holds no more is never refused: those of all connections together are few megabytes."""
RETRY_S = 1


class MemoryBudget:
    """Of one worker. A request may hold half of what the others leave: a few large ones never keep out the small."""

    def __init__(self, most_body_bytes: int) -> None:
        self.most_bytes = max(LEAST_BYTES, BODIES * most_body_bytes)
        self.used_bytes = 0


class Reservation:
    """What one request holds of a budget, from its first `take` to its `release`."""

    __slots__ = ("_budget", "_bytes")

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget, self._bytes = budget, 0

    def take(self, count: int) -> None:
        """So many bytes more; RequestError (503) if there is no space, unless no other request holds any."""
        budget, mine = self._budget, self._bytes + count
        others = budget.used_bytes - self._bytes
        if mine > SMALL_BYTES and others and 2 * mine > budget.most_bytes - others:
            raise RequestError(
                503,
                f"the requests in hand take {budget.used_bytes >> 20} MB, of {budget.most_bytes >> 20} MB for all; "
                "send large ones one after the other",
                RETRY_S,
            )
        self._bytes = mine
        budget.used_bytes += count

    def give(self, count: int) -> None:
        """So many bytes back."""
        self._bytes -= count
        self._budget.used_bytes -= count

    def release(self) -> None:
        """All of it."""
        self._budget.used_bytes -= self._bytes
        self._bytes = 0


Receive = Callable[[], Awaitable[dict[str, Any]]]


async def await_or_disconnect(future: asyncio.Future[Answer], receive: Receive | None) -> Answer:
    """The answer; ClientDisconnected, and the job cancelled, where the client hangs up first."""
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
