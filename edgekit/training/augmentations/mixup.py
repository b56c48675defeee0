"""Mixup: Zhang, Cisse, Dauphin, Lopez-Paz, "mixup: Beyond Empirical Risk Minimization", ICLR 2018.

Each sample is blended with another one of its batch. The authors' code draws one mixing share for a whole batch; here
each sample has a share of its own, from the same distribution.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from edgekit.training.augmentations import AugmentationOptions, Mix

KINDS = ("image", "window")
TASKS = ("classification", "multi_label")
MIXES = True


class Options(AugmentationOptions):
    """Options of mixup."""

    kind: Literal["mixup"] = "mixup"
    alpha: float = Field(0.2, gt=0, le=10, description="both parameters of the share's beta distribution; 1: uniform")


def apply(samples: np.ndarray, options: Options, random: np.random.Generator) -> tuple[np.ndarray, Mix]:
    """Return share * sample + (1 - share) * partner for samples (n, *sample). Integers are rounded to the nearest."""
    partners = random.permutation(len(samples))
    shares = random.beta(options.alpha, options.alpha, len(samples))
    own_shares = np.where(random.random(len(samples)) < options.probability, shares, 1.0).astype(np.float32)
    weights = own_shares.reshape(-1, *[1] * (samples.ndim - 1))
    blended = weights * samples + (1 - weights) * samples[partners]
    if np.issubdtype(samples.dtype, np.integer):
        blended = np.rint(blended)
    return blended.astype(samples.dtype), Mix(partners, own_shares)
