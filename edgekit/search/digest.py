"""One digest for what a study found: the same for any number of workers, any order of completion, any kills."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from edgekit.core.hashing import canonical, digest


def key(parts: Mapping[str, Any]) -> str:
    """The key of a study: hex sha256 of all that decides which trials it asks. Its digests begin from it."""
    return digest(dict(parts))


def as_json(parts: Mapping[str, Any]) -> dict[str, Any]:
    """The parts, written as JSON and read again, so that those of a journal can be compared with them."""
    found: dict[str, Any] = json.loads(canonical(dict(parts)))
    return found


def differing(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Names of the parts in which two keys differ."""
    return [name for name in {**before, **now} if before.get(name) != now.get(name)]
