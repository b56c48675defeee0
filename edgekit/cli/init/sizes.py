"""What a config may ask of data of this size: batches, epochs, calibration samples, and a budget that it can show."""

from __future__ import annotations

import math
from dataclasses import dataclass

from edgekit.core.tasks import accuracy_drop

CONFIDENCE = 0.95
"""Of `budget.accuracy_confidence`, as it is by default."""
STEPS = 600
"""Optimiser steps after which a small network has learned most of what it will."""
LOOSE_PP, USUAL_PP = 15.0, 5.0
"""A budget above the first is hardly one; the second is what a first run should be able to show."""
LOST_SHARE = 0.01
"""Of the validation samples: how many a variant may lose in a first run."""


@dataclass(frozen=True)
class Sizes:
    """Samples of each split as the config leaves them, and what follows from them; `least_batch` a batch must have."""

    train: int
    calibration: int
    validation: int
    test: int
    least_batch: int = 2

    @property
    def batch(self) -> int:
        """A power of two, about a twentieth of the train split and never more than all of it; or what it must be."""
        most = max(2, 1 << (self.train.bit_length() - 1))
        return max(self.least_batch, min(most, max(8, min(128, 1 << max(1, self.train // 20).bit_length() - 1))))

    @property
    def epochs(self) -> int:
        """Enough for some hundred steps, but not an evening of a large data set."""
        return int(min(60, max(8, round(STEPS / math.ceil(self.train / self.batch)))))

    @property
    def lost(self) -> int:
        """Validation samples that a variant may answer wrongly where the baseline is right."""
        return max(1, round(LOST_SHARE * self.validation))

    @property
    def drop_pp(self) -> float:
        """The drop that this leaves open, rounded up: a budget that can be met."""
        bound_pp = accuracy_drop.bounded(self.lost, 0, self.validation, CONFIDENCE).bound_pp
        step = 10 if bound_pp < 2 else 2
        return min(100.0, math.ceil(step * bound_pp) / step)


def small_validation_warning(sizes: Sizes) -> str:
    """What to do where so few samples validate that nearly every variant is inside the budget; empty elsewhere."""
    if sizes.drop_pp <= LOOSE_PP:
        return ""
    enough = next(n for n in range(10, 10_000, 10) if Sizes(1, 1, n, 1).drop_pp <= USUAL_PP)
    some = "sample shows" if sizes.validation == 1 else "samples show"
    return (
        f"{sizes.validation} validation {some} no drop below {sizes.drop_pp:g} pp, so the budget refuses next to "
        f"nothing; {enough} would show {USUAL_PP:g} pp: give more data, or a larger validation split"
    )
