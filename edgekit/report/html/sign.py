"""The sign of a page: a digest of all that it was drawn from, which the page carries. Nothing here draws pages."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from edgekit import __version__
from edgekit.core.hashing import digest, sha256_file

_SIGN = re.compile(r'<meta name="drawn-from" content="([0-9a-f]{64})">')


def digest_with_code(sources: Sequence[Path]) -> str:
    """Digest of files that a page is drawn from, and of the code that draws it."""
    code = sorted(path for path in Path(__file__).parents[1].rglob("*") if path.is_file() and path.suffix != ".pyc")
    return digest([__version__, *([path.name, sha256_file(path)] for path in (*sources, *code))])


def sign_of(text: str) -> str | None:
    """What a page says that it was drawn from."""
    found = _SIGN.search(text, 0, 2000)
    return found[1] if found else None
