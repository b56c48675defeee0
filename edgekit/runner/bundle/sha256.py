"""SHA-256 without OpenSSL for small data, because loading that library takes 4 ms and 3.5 MB of memory."""

from __future__ import annotations

from typing import Any

LARGE_BYTES = 8 * 2**20
"""From this size on, OpenSSL's faster code makes up for loading it."""


def new(size: int) -> Any:
    """Return a SHA-256 object, from the better of Python's two implementations for about `size` bytes."""
    if size < LARGE_BYTES:
        try:
            from _sha2 import sha256  # type: ignore[import-not-found]  # Python 3.12 and newer

            return sha256()
        except ImportError:
            pass
        try:
            from _sha256 import sha256  # type: ignore[import-not-found]  # Python 3.11 and older

            return sha256()
        except ImportError:
            pass
    import hashlib

    return hashlib.sha256()


def hexdigest(data: bytes) -> str:
    """Return the digest as 64 hexadecimal digits."""
    digest = new(len(data))
    digest.update(data)
    text: str = digest.hexdigest()
    return text
