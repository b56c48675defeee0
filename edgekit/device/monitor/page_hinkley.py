"""Whether the mean of a stream has moved, by Page and Hinkley's test (Page, Biometrika 1954)."""

from __future__ import annotations


class PageHinkley:
    """Sums what lies above and below the mean so far, less `delta`; a sum `threshold` away from its limit is a change.

    `alpha` lets the sums fade. Behind a change it begins anew.
    """

    def __init__(
        self, least: int = 30, delta: float = 0.005, threshold: float = 50.0, alpha: float = 1 - 0.0001
    ) -> None:
        self.least, self.delta, self.threshold, self.alpha = least, delta, threshold, alpha
        self._begin()

    def _begin(self) -> None:
        self.n, self.mean, self._up, self._down = 0, 0.0, 0.0, 0.0
        self._lowest, self._highest = float("inf"), -1.0

    def update(self, x: float) -> bool:
        """Take the next value; whether a change is found with it."""
        self.n += 1
        self.mean += (x - self.mean) / self.n
        off = x - self.mean
        self._up = self.alpha * self._up + off - self.delta
        self._down = self.alpha * self._down + off + self.delta
        self._lowest, self._highest = min(self._lowest, self._up), max(self._highest, self._down)
        far = max(self._up - self._lowest, self._highest - self._down)
        found = self.n >= self.least and far > self.threshold
        if found:
            self._begin()
        return found
