"""ADWIN: detect a change of a stream's mean by adaptive windowing (Bifet and Gavaldà, SDM 2007)."""

from __future__ import annotations

from math import log, sqrt

BUCKETS = 5
"""How many buckets there may be of each size. Sizes are powers of two: if there is one bucket too many, the oldest two
are merged into one of the next size."""


class Adwin:
    """A window that grows while its older and newer parts agree, and restarts when they do not.

    `delta` bounds the probability of a false alarm. After every `every` values, if there are more than `grace`, the
    window is searched for a point that divides it into two parts of at least `least` values whose means differ.
    """

    def __init__(self, delta: float = 0.002, every: int = 32, least: int = 5, grace: int = 10) -> None:
        self.delta, self.every, self.least, self.grace = delta, every, least, grace
        self.moved: tuple[float, float] | None = None
        """Means of the older and newer parts at the last detected change."""
        self._begin()

    def _begin(self) -> None:
        self.width, self.total, self._squares = 0, 0.0, 0.0
        self._rows: list[list[float]] = [[]]  # sums of buckets by size, oldest first

    def update(self, x: float) -> bool:
        """Add the next value. Returns whether a change is detected at this value."""
        if self.width:
            self._squares += self.width * (x - self.total / self.width) ** 2 / (self.width + 1)
        self.width += 1
        self.total += x
        self._rows[0].append(x)
        for power, row in enumerate(self._rows):
            if len(row) <= BUCKETS:
                break
            if power + 1 == len(self._rows):
                self._rows.append([])
            self._rows[power + 1].append(row.pop(0) + row.pop(0))
        return self.width % self.every == 0 and self.width > self.grace and self._cut()

    def _cut(self) -> bool:
        old, older = 0, 0.0
        for power in range(len(self._rows) - 1, -1, -1):
            for bucket in self._rows[power]:
                old, older = old + 2**power, older + bucket
                new = self.width - old
                if old >= self.least and new >= self.least and self._differ(old, new, older):
                    self.moved = older / old, (self.total - older) / new
                    self._begin()
                    return True
        return False

    def _differ(self, old: int, new: int, older: float) -> bool:
        shares = log(2 * log(self.width) / self.delta)
        inverse = 1 / (old - self.least + 1) + 1 / (new - self.least + 1)
        bound = sqrt(2 * inverse * self._squares / self.width * shares) + 2 / 3 * shares * inverse
        return abs(older / old - (self.total - older) / new) > bound
