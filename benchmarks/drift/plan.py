"""How much is measured."""

from __future__ import annotations

from dataclasses import dataclass

BUDGET = 100_000
"""Sound samples in which one false alarm is allowed."""
WINDOW, LARGE = 256, 1024
"""Samples of a window that is tested offline, and of one for evidently, which is slow."""
LEVEL = 0.05
"""The default p-value of alibi-detect's tests."""


@dataclass(frozen=True)
class Plan:
    """`after` samples follow a drift's begin. Sound streams are of `line` samples, each with a reference of its own.

    There are `independent` lines for each subject, and `alike` ones in each order whose neighbours are alike. `long`
    samples more are one stream of a single reference. Peers that are slow get `slow` streams a drift.
    """

    quick: bool
    seeds: int
    after: int
    line: int
    independent: int
    alike: int
    long: int
    slow: int

    def lines(self, order: str) -> int:
        """Streams of an order."""
        return self.independent if order == "independent" else self.alike


WHOLE = Plan(quick=False, seeds=10, after=2048, line=5_000, independent=5, alike=2, long=100_000, slow=1)
QUICK = Plan(quick=True, seeds=2, after=512, line=2_000, independent=1, alike=1, long=0, slow=0)
