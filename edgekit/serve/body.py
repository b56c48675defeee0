"""A request's body as it arrives. A large one has pages of its own, which go back to the system when it is answered.

The allocator would keep them: bodies that grow side by side leave holes, and a worker kept twice what its bodies took.
"""

from __future__ import annotations

import mmap
from typing import Union

OWN_PAGES_BYTES = 1 << 20
"""From here on a body has them."""

Body = Union[bytes, bytearray, memoryview]


class Received:
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
