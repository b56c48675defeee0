"""The sign of all that a page was drawn from; read without what draws pages."""

from __future__ import annotations

import re

_SIGN = re.compile(r'<meta name="drawn-from" content="([0-9a-f]{64})">')


def sign_of(text: str) -> str | None:
    """What a page says that it was drawn from."""
    found = _SIGN.search(text, 0, 2000)
    return found[1] if found else None
