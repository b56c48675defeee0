"""CutMix: Yun, Han, Oh, Chun, Choe, Yoo, "CutMix: Regularization Strategy to Train Strong Classifiers", ICCV 2019.

A rectangle of each image is replaced by that of another one of its batch. The labels are mixed by area.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from edgekit.training.augmentations import AugmentationOptions, Mix

KINDS = ("image",)
TASKS = ("classification", "multi_label")
MIXES = True


class Options(AugmentationOptions):
    """How large the rectangles are, and how often there is one; the defaults are the authors' for CIFAR."""

    kind: Literal["cutmix"] = "cutmix"
    probability: float = Field(0.5, ge=0, le=1, description="probability that a sample is changed")
    alpha: float = Field(1.0, gt=0, le=10, description="both parameters of the area's beta distribution; 1: uniform")


def apply(images: np.ndarray, options: Options, random: np.random.Generator) -> tuple[np.ndarray, Mix]:
    """Images (n, height, width, channels); the rectangle has the image's shape, and is cut off at its edges.

    The share that is kept is that of the pixels which stayed, as in the paper's section 3.1.
    """
    count, height, width = images.shape[:3]
    partners = random.permutation(count)
    sides = np.sqrt(1 - random.beta(options.alpha, options.alpha, count))
    chosen = random.random(count) < options.probability
    rows, columns = random.integers(0, height, count), random.integers(0, width, count)
    high, wide = (np.rint(sides * side).astype(np.int64) for side in (height, width))
    top, left = np.maximum(rows - high // 2, 0), np.maximum(columns - wide // 2, 0)
    bottom, right = np.minimum(rows - high // 2 + high, height), np.minimum(columns - wide // 2 + wide, width)
    mixed = images.copy()
    for place in np.flatnonzero(chosen):
        box = np.s_[top[place] : bottom[place], left[place] : right[place]]
        mixed[place][box] = images[partners[place]][box]
    replaced = (bottom - top) * (right - left) / (height * width)
    return mixed, Mix(partners, np.where(chosen, 1 - replaced, 1.0).astype(np.float32))
