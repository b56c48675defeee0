"""One digest for what a study found: the same for any number of workers, any order of completion, any kills."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from edgekit.core.hashing import canonical, digest
from edgekit.core.rows.study import TrialRow


def key(parts: Mapping[str, Any]) -> str:
    """The key of a study: hex sha256 of all that decides which trials it asks. Its digests begin from it."""
    return digest(dict(parts))


def as_json(parts: Mapping[str, Any]) -> dict[str, Any]:
    """The parts, written as JSON and read again, so that those of a journal can be compared with them."""
    found: dict[str, Any] = json.loads(canonical(dict(parts)))
    return found


def chained(before: str, rows: Sequence[TrialRow]) -> str:
    """The digest behind one more batch. So the digest of a shorter study is one of a longer study's.

    What counts is, by number: parameters, state, values and constraints as told. Seconds and words do not count.
    """
    told = [
        [row["number"], row["parameters"], row["state"], row["values"], row["constraints"]]
        for row in sorted(rows, key=lambda row: row["number"])
    ]
    return digest([before, told])


def differing(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Names of the parts in which two keys differ."""
    return [name for name in {**before, **now} if before.get(name) != now.get(name)]
