"""RandAugment: Cubuk, Zoph, Shlens, Le, "RandAugment: Practical automated data augmentation", NeurIPS 2020.

Each image goes through operations drawn at random, all with one magnitude of 0 to 10. Their ranges are those of
AutoAugment (Cubuk et al. 2019, table 6). Images are turned and sheared about their centre, and the nearest pixel is
taken. All is numpy: a library's next version changes no training.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
from pydantic import Field

from edgekit.core.errors import ConfigError
from edgekit.training.augmentations import AugmentationOptions

KINDS = ("image",)
TASKS = ("classification", "multi_label", "embedding")
MIXES = False
STRONGEST = 10
LUMA = (0.299, 0.587, 0.114)
SMOOTH = np.array([[1, 1, 1], [1, 5, 1], [1, 1, 1]], dtype=np.float32) / 13
MOST_SHEAR, MOST_SHIFT, MOST_DEGREES, MOST_FACTOR, MOST_BITS = 0.3, 0.45, 30.0, 0.9, 4


class Options(AugmentationOptions):
    """How many operations, and how strong they are."""

    kind: Literal["rand_augment"] = "rand_augment"
    operations: int = Field(2, ge=1, le=8, description="operations on each image, one after the other")
    magnitude: float = Field(5.0, ge=0, le=STRONGEST, description="strength of all operations, 0 to 10")


def apply(images: np.ndarray, options: Options, random: np.random.Generator) -> tuple[np.ndarray, None]:
    """Images (n, height, width, channels) uint8; ConfigError for other types, whose range nobody knows."""
    if images.dtype != np.uint8:
        raise ConfigError(f"rand_augment: got images of {images.dtype}; it changes those of uint8 alone; leave it out")
    count = len(images)
    chosen = random.random(count) < options.probability
    drawn = random.integers(0, len(OPERATIONS), (options.operations, count))
    signs = random.integers(0, 2, (options.operations, count)) * 2.0 - 1
    changed, level = images.copy(), options.magnitude / STRONGEST
    for which, sign in zip(drawn, signs, strict=True):
        for number, operation in enumerate(OPERATIONS):
            places = np.flatnonzero(chosen & (which == number))
            if len(places):
                changed[places] = operation(changed[places], level * sign[places])
    return changed, None


Operation = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Images (n, height, width, channels), and a level of -1 to 1 for each."""


def identity(images: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """As they are."""
    return images


def shear_x(images: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Rows moved in proportion to their distance from the centre."""
    return _resampled(images, along_x=(1.0, MOST_SHEAR * levels))


def shear_y(images: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """The same of columns."""
    return _resampled(images, along_y=(MOST_SHEAR * levels, 1.0))


def shift_x(images: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Moved to the side, by whole pixels."""
    return _resampled(images, by=(np.rint(MOST_SHIFT * levels * images.shape[2]), 0.0))


def shift_y(images: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Moved up or down."""
    return _resampled(images, by=(0.0, np.rint(MOST_SHIFT * levels * images.shape[1])))


def rotate(images: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Turned."""
    angles = np.deg2rad(MOST_DEGREES * levels)
    cosine, sine = np.cos(angles), np.sin(angles)
    return _resampled(images, along_x=(cosine, sine), along_y=(-sine, cosine))


def brightness(images: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Nearer to black, or away from it."""
    return _away_from(np.zeros_like(images, dtype=np.float32), images, levels)


def contrast(images: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Nearer to the image's mean grey, or away from it."""
    return _away_from(np.rint(_grey(images).mean(axis=(1, 2), keepdims=True)), images, levels)


def colour(images: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Nearer to the grey of each pixel, or away from it."""
    return _away_from(_grey(images), images, levels)


def sharpness(images: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Nearer to the smoothed image, or away from it; its edge of one pixel stays."""
    smooth: np.ndarray = images.astype(np.float32)
    if min(images.shape[1:3]) > 2:
        around = np.lib.stride_tricks.sliding_window_view(smooth, (3, 3), axis=(1, 2))
        smooth[:, 1:-1, 1:-1] = (around * SMOOTH).sum(axis=(-2, -1))
    return _away_from(smooth, images, levels)


def posterize(images: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Up to four low bits of each value become 0."""
    lost = np.rint(MOST_BITS * np.abs(levels)).astype(np.uint8)[:, None, None, None]
    return (images >> lost) << lost


def solarize(images: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Values above a threshold are inverted."""
    threshold = (256 * (1 - np.abs(levels)))[:, None, None, None]
    return np.where(images >= threshold, 255 - images, images)


def autocontrast(images: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Each channel stretched to 0 to 255."""
    low, high = (found.astype(np.float32) for found in (images.min((1, 2), keepdims=True),
                                                        images.max((1, 2), keepdims=True)))  # fmt: skip
    stretched = np.rint((images - low) * (255 / np.maximum(high - low, 1)))
    return np.where(high > low, stretched, images).astype(np.uint8)


def equalize(images: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """The histogram of each channel made flat, as Pillow's ImageOps.equalize does."""
    found = images.copy()
    for image in found:
        for channel in range(image.shape[2]):
            image[..., channel] = _equalized(image[..., channel])
    return found


OPERATIONS: tuple[Operation, ...] = (
    *(identity, autocontrast, equalize, rotate, solarize, colour, posterize, contrast, brightness, sharpness),
    *(shear_x, shear_y, shift_x, shift_y),
)


def _equalized(plane: np.ndarray) -> np.ndarray:
    counts = np.bincount(plane.ravel(), minlength=256)
    there = np.flatnonzero(counts)
    step = (counts.sum() - counts[there[-1]]) // 255
    if len(there) < 2 or not step:
        return plane
    below = np.concatenate([[0], np.cumsum(counts)[:-1]])
    table = np.minimum((below + step // 2) // step, 255).astype(np.uint8)
    found: np.ndarray = table[plane]
    return found


def _grey(images: np.ndarray) -> np.ndarray:
    """(n, height, width, 1) float32, whole numbers."""
    weights = LUMA if images.shape[3] == len(LUMA) else [1 / images.shape[3]] * images.shape[3]
    grey: np.ndarray = np.rint(images.astype(np.float32) @ np.array(weights, dtype=np.float32))
    return grey[..., None]


def _away_from(other: np.ndarray, images: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """other + factor * (image - other), the factor 1 at level 0."""
    factors = (1 + MOST_FACTOR * levels).astype(np.float32)[:, None, None, None]
    blended: np.ndarray = np.clip(np.rint(other + factors * (images - other)), 0, 255).astype(np.uint8)
    return blended


Number = float | np.ndarray


def _resampled(
    images: np.ndarray,
    along_x: tuple[Number, Number] = (1.0, 0.0),
    along_y: tuple[Number, Number] = (0.0, 1.0),
    by: tuple[Number, Number] = (0.0, 0.0),
) -> np.ndarray:
    """Each pixel from where x and y, counted from the centre, are led to; 0 where that is outside."""
    count, height, width = images.shape[:3]
    y, x = np.mgrid[:height, :width] - np.array([(height - 1) / 2, (width - 1) / 2])[:, None, None]

    def led(factors: tuple[Number, Number], offset: Number, side: int) -> np.ndarray:
        of_x, of_y, more = (np.broadcast_to(each, count)[:, None, None] for each in (*factors, offset))
        place: np.ndarray = np.rint(of_x * x + of_y * y + more + (side - 1) / 2).astype(np.int64)
        return place

    columns, rows = led(along_x, by[0], width), led(along_y, by[1], height)
    inside = (columns >= 0) & (columns < width) & (rows >= 0) & (rows < height)
    which = np.arange(count)[:, None, None]
    found = images[which, np.clip(rows, 0, height - 1), np.clip(columns, 0, width - 1)]
    return np.where(inside[..., None], found, 0).astype(np.uint8)
