"""How much is measured."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.drift.peers.offline import Test

BUDGET = 100_000
"""Sound samples in which one false alarm is allowed."""


@dataclass(frozen=True)
class Plan:
    """`after` samples follow a drift's begin; sound streams are `lines` of `line` samples, each with its reference.

    `long` samples more are one stream of a single reference. `slow_seeds` are for peers that take long.
    """

    quick: bool
    seeds: int
    after: int
    lines: int
    line: int
    long: int
    slow_seeds: int

    @property
    def sound(self) -> int:
        """Samples of sound streams in each order."""
        return self.lines * self.line


WHOLE = Plan(quick=False, seeds=10, after=4096, lines=10, line=10_000, long=100_000, slow_seeds=2)
QUICK = Plan(quick=True, seeds=2, after=1024, lines=2, line=2_000, long=0, slow_seeds=0)

WINDOW, LARGE = 256, 1024
"""Samples of a window that is tested offline, and of one for evidently, which is slow."""
KS = Test("ks", WINDOW, 0.05)
KS_BUDGET = Test("ks", WINDOW, WINDOW / BUDGET)
"""The same with so small a p-value that there should be one false alarm in BUDGET samples."""
MMD = Test("mmd", WINDOW, 0.05)
EVIDENTLY = Test("evidently", LARGE, 0.5)
"""Their own defaults: MMD's p-value, and evidently's half of the columns."""
