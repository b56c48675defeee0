"""Random erasing: Zhong, Zheng, Kang, Li, Yang, "Random Erasing Data Augmentation", AAAI 2020.

A rectangle of an image becomes noise, so that no single part of an object is all that is looked at.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field, model_validator

from edgekit.training.augmentations import AugmentationOptions

KINDS = ("image",)
TASKS = ("classification", "multi_label", "regression", "embedding")
MIXES = False
LONGEST = 1 / 0.3
"""The rectangle's longer side by its shorter one, at most."""


class Options(AugmentationOptions):
    """How often and how much is erased; the defaults are the authors'."""

    kind: Literal["erase"] = "erase"
    probability: float = Field(0.5, ge=0, le=1, description="probability that a sample is changed")
    least_area: float = Field(0.02, gt=0, le=1, description="smallest share of the image that is erased")
    largest_area: float = Field(0.4, gt=0, le=1, description="largest share of the image that is erased")

    @model_validator(mode="after")
    def _in_order(self) -> Options:
        if self.least_area > self.largest_area:
            raise ValueError(
                f"least_area ({self.least_area:g}) is above largest_area ({self.largest_area:g}); swap them"
            )
        return self


def apply(images: np.ndarray, options: Options, random: np.random.Generator) -> tuple[np.ndarray, None]:
    """Images (n, height, width, channels); each value of the rectangle is drawn anew, 0 to 255 or in the image's range.

    A rectangle that is longer than the image is cut to it. The authors draw another one.
    """
    count, height, width = images.shape[:3]
    chosen = random.random(count) < options.probability
    areas = random.uniform(options.least_area, options.largest_area, count) * height * width
    ratios = np.exp(random.uniform(-np.log(LONGEST), np.log(LONGEST), count))
    high = np.clip(np.rint(np.sqrt(areas * ratios)), 1, height).astype(np.int64)
    wide = np.clip(np.rint(np.sqrt(areas / ratios)), 1, width).astype(np.int64)
    top, left = random.integers(0, height - high + 1), random.integers(0, width - wide + 1)
    erased = images.copy()
    for place in np.flatnonzero(chosen):
        part = erased[place, top[place] : top[place] + high[place], left[place] : left[place] + wide[place]]
        part[...] = _noise(images[place], part.shape, random)
    return erased, None


def _noise(image: np.ndarray, shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
    if image.dtype == np.uint8:
        return random.integers(0, 256, shape, dtype=np.uint8)
    return random.uniform(image.min(), image.max(), shape).astype(image.dtype)
