"""What every source of energy figures gives, and what it raises."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


class Unreadable(Exception):
    """Why there is no figure, in words that end a sentence such as "energy is unknown: …"."""


@dataclass(frozen=True)
class Spent:
    """What a piece of work took: joules of all that the source sees, and seconds."""

    joules: float
    seconds: float


class Source(Protocol):
    """Something that knows how much energy was spent."""

    @property
    def name(self) -> str:
        """What it is and what it sees, for a caption."""

    def of(self, work: Callable[[], object]) -> Spent:
        """Energy from before `work` to after it; Unreadable where there is no sound figure."""
