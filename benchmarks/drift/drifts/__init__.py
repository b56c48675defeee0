"""Seeded drifts: what changes in the field, applied to real samples of one kind.

A drift takes raw samples (n, *shape), a strength and a generator, and gives samples of the same shape, type and range.
`classes.py` has the drifts of what is seen rather than of how: they choose samples, and change none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Change = Callable[[np.ndarray, float, np.random.Generator], np.ndarray]


@dataclass(frozen=True)
class Drift:
    """A change of samples in two strengths, whose unit `what` names; `weak_` and `strong_` go to `change`."""

    name: str
    what: str
    change: Change
    weak: float
    strong: float

    def apply(self, raws: np.ndarray, strength: str, seed: int, share: float = 1.0) -> np.ndarray:
        """Changed samples for `raws` (n, *shape); `share` of the way from no change, for drifts that come slowly.

        The strength is "weak" or "strong". Equal seeds give equal samples.
        """
        rng = np.random.default_rng((seed, sum(self.name.encode())))
        return self.change(raws, share * {"weak": self.weak, "strong": self.strong}[strength], rng)


def as_type(values: np.ndarray, like: np.ndarray, lowest: float = -1.0, highest: float = 1.0) -> np.ndarray:
    """Values in the type of the samples: 0 to 255 for uint8, cut off at the ends of the range otherwise."""
    if like.dtype == np.uint8:
        return np.clip(np.rint(values), 0, 255).astype(np.uint8)
    return np.clip(values, lowest, highest).astype(like.dtype)
