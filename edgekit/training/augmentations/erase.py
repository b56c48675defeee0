"""Random erasing: Zhong, Zheng, Kang, Li, Yang, "Random Erasing Data Augmentation", AAAI 2020.

A rectangle of an image is replaced by noise, so that the network does not rely on a single part of an object.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field, model_validator

from edgekit.training.augmentations import AugmentationOptions

KINDS = ("image",)
TASKS = ("classification", "multi_label", "regression", "embedding")
MIXES = False
MAX_ASPECT_RATIO = 1 / 0.3
"""Largest ratio of the longer side of the rectangle to the shorter one."""


class Options(AugmentationOptions):
    """Options of random erasing. The defaults are those of the authors."""

    kind: Literal["erase"] = "erase"
    probability: float = Field(0.5, ge=0, le=1, description="probability that a sample is changed")
    least_area: float = Field(0.02, gt=0, le=1, description="smallest share of the image that is erased")
    largest_area: float = Field(0.4, gt=0, le=1, description="largest share of the image that is erased")

    @model_validator(mode="after")
    def _check_areas(self) -> Options:
        if self.least_area > self.largest_area:
            raise ValueError(
                f"least_area ({self.least_area:g}) is above largest_area ({self.largest_area:g}); swap them"
            )
        return self


def apply(images: np.ndarray, options: Options, random: np.random.Generator) -> tuple[np.ndarray, None]:
    """Erase a rectangle of some of the images (n, height, width, channels).

    Each value of the rectangle is drawn at random: from 0 to 255 for bytes, otherwise from the range of the image's
    values. A rectangle that is longer than the image is clipped, whereas the authors draw another one.
    """
    count, height, width = images.shape[:3]
    chosen = random.random(count) < options.probability
    areas = random.uniform(options.least_area, options.largest_area, count) * height * width
    ratios = np.exp(random.uniform(-np.log(MAX_ASPECT_RATIO), np.log(MAX_ASPECT_RATIO), count))
    heights = np.clip(np.rint(np.sqrt(areas * ratios)), 1, height).astype(np.int64)
    widths = np.clip(np.rint(np.sqrt(areas / ratios)), 1, width).astype(np.int64)
    top, left = random.integers(0, height - heights + 1), random.integers(0, width - widths + 1)
    erased = images.copy()
    for index in np.flatnonzero(chosen):
        part = erased[index, top[index] : top[index] + heights[index], left[index] : left[index] + widths[index]]
        part[...] = _noise(images[index], part.shape, random)
    return erased, None


def _noise(image: np.ndarray, shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
    if image.dtype == np.uint8:
        return random.integers(0, 256, shape, dtype=np.uint8)
    return random.uniform(image.min(), image.max(), shape).astype(image.dtype)
