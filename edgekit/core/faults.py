"""Several faults of a config, reported at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from edgekit.core.errors import ConfigError

T = TypeVar("T")
MOST = 20
"""Most lines in a message; of the rest it gives the number."""


class Faults:
    """Collects ConfigErrors, to raise them together."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def add(self, fault: str) -> None:
        """One more, of a line or several."""
        self.found += fault.splitlines()

    def of(self, make: Callable[[], T]) -> T | None:
        """What `make` gives; None where it raises a ConfigError, which is kept."""
        try:
            return make()
        except ConfigError as error:
            self.add(str(error))
            return None

    def raise_all(self, most: int | None = None) -> None:
        """ConfigError where there is any, with at most so many lines."""
        if not self.found:
            return
        more = len(self.found) - most if most else 0
        raise ConfigError("\n".join([*self.found[:most], *([f"and {more} more"] if more > 0 else [])]))
