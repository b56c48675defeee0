"""What a seeded fault is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Seed:
    """One fault: `old` stands exactly once in `file` (below edgekit/) and becomes `new`; `harm` is what a user suffers.

    `tests` are those most likely to notice, run first.
    """

    name: str
    file: str
    old: str
    new: str
    harm: str
    tests: tuple[str, ...]
