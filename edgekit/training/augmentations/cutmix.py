"""CutMix: Yun, Han, Oh, Chun, Choe, Yoo, "CutMix: Regularization Strategy to Train Strong Classifiers", ICCV 2019.

A rectangle of each image is replaced by the same rectangle of another image of the batch. The labels are mixed by area.
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
    """Options of CutMix. The defaults are those of the authors for CIFAR."""

    kind: Literal["cutmix"] = "cutmix"
    probability: float = Field(0.5, ge=0, le=1, description="probability that a sample is changed")
    alpha: float = Field(1.0, gt=0, le=10, description="both parameters of the area's beta distribution; 1: uniform")


def apply(images: np.ndarray, options: Options, random: np.random.Generator) -> tuple[np.ndarray, Mix]:
    """Mix images (n, height, width, channels).

    The rectangle has the proportions of the image and is clipped at the image's edges. The weight of an image's own
    label is the share of its pixels that were not replaced, as in section 3.1 of the paper.
    """
    count, height, width = images.shape[:3]
    partners = random.permutation(count)
    sides = np.sqrt(1 - random.beta(options.alpha, options.alpha, count))
    chosen = random.random(count) < options.probability
    rows, columns = random.integers(0, height, count), random.integers(0, width, count)
    box_heights, box_widths = (np.rint(sides * side).astype(np.int64) for side in (height, width))
    top, left = np.maximum(rows - box_heights // 2, 0), np.maximum(columns - box_widths // 2, 0)
    bottom = np.minimum(rows - box_heights // 2 + box_heights, height)
    right = np.minimum(columns - box_widths // 2 + box_widths, width)
    mixed = images.copy()
    for index in np.flatnonzero(chosen):
        box = np.s_[top[index] : bottom[index], left[index] : right[index]]
        mixed[index][box] = images[partners[index]][box]
    replaced_shares = (bottom - top) * (right - left) / (height * width)
    return mixed, Mix(partners, np.where(chosen, 1 - replaced_shares, 1.0).astype(np.float32))
