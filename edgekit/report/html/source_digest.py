"""Compute the digest of everything that a page is built from. It shows whether a page that carries it is current."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from edgekit import __version__
from edgekit.core.hashing import digest, sha256_file

_STORED_DIGEST = re.compile(r'<meta name="drawn-from" content="([0-9a-f]{64})">')


def digest_with_code(sources: Sequence[Path]) -> str:
    """Return the digest of the sources of a page and of the code that builds it."""
    code = sorted(path for path in Path(__file__).parents[1].rglob("*") if path.is_file() and path.suffix != ".pyc")
    return digest([__version__, *([path.name, sha256_file(path)] for path in (*sources, *code))])


def stored_digest(text: str) -> str | None:
    """Return the digest that a page carries, or None if it has none."""
    match = _STORED_DIGEST.search(text, 0, 2000)
    return match[1] if match else None
