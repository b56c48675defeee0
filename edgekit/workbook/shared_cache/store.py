"""What a shared cache needs of the place that holds its objects, and how such a place fails."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

Kind = Literal["unreachable", "refused", "full", "read-only", "damaged"]


class StoreError(Exception):
    """An operation failed; `kind` says in which way, the message says it in words without any credential."""

    def __init__(self, kind: Kind, words: str) -> None:
        super().__init__(words)
        self.kind: Kind = kind


@dataclass(frozen=True)
class Found:
    """An object of a listing; `age_s` is in seconds."""

    path: str
    size_bytes: int
    age_s: float


class Store(Protocol):
    """Objects by their names, such as `cas/0a1b…`; nothing is ever changed, only created and removed."""

    url: str

    def read(self, path: str) -> Iterator[bytes] | None:
        """The bytes of an object in pieces; None where there is no such object."""

    def create(self, path: str, content: Path | bytes) -> bool:
        """Create an object in one step; False where one of this name is there, which then stays as it is."""

    def list(self, prefix: str) -> Iterator[Found]:
        """The objects whose name begins with `prefix`, a folder such as `keys/` and what follows."""

    def remove(self, path: str) -> None:
        """Remove an object; nothing happens where there is none."""
