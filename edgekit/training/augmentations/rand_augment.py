"""RandAugment: Cubuk, Zoph, Shlens, Le, "RandAugment: Practical automated data augmentation", NeurIPS 2020.

A few randomly drawn operations are applied to each image, all with the same magnitude from 0 to 10. The ranges of the
operations are those of AutoAugment (Cubuk et al. 2019, table 6). Images are rotated and sheared about their centre,
with nearest-neighbour sampling. Everything is written in NumPy, so that a new version of an image library cannot change
a training.
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
MAX_MAGNITUDE = 10
LUMA = (0.299, 0.587, 0.114)
SMOOTHING_KERNEL = np.array([[1, 1, 1], [1, 5, 1], [1, 1, 1]], dtype=np.float32) / 13
MAX_SHEAR, MAX_SHIFT, MAX_DEGREES, MAX_FACTOR, MAX_BITS = 0.3, 0.45, 30.0, 0.9, 4


class Options(AugmentationOptions):
    """Options of RandAugment."""

    kind: Literal["rand_augment"] = "rand_augment"
    operations: int = Field(2, ge=1, le=8, description="operations on each image, one after the other")
    magnitude: float = Field(5.0, ge=0, le=MAX_MAGNITUDE, description="strength of all operations, 0 to 10")


def apply(images: np.ndarray, options: Options, random: np.random.Generator) -> tuple[np.ndarray, None]:
    """Augment images (n, height, width, channels) uint8.

    Raises ConfigError for other types, because the range of their values is not known.
    """
    if images.dtype != np.uint8:
        raise ConfigError(f"rand_augment: got images of {images.dtype}; it supports only uint8; leave it out")
    count = len(images)
    chosen = random.random(count) < options.probability
    drawn = random.integers(0, len(OPERATIONS), (options.operations, count))
    signs = random.integers(0, 2, (options.operations, count)) * 2.0 - 1
    changed, level = images.copy(), options.magnitude / MAX_MAGNITUDE
    for operation_numbers, sign in zip(drawn, signs, strict=True):
        for number, operation in enumerate(OPERATIONS):
            indices = np.flatnonzero(chosen & (operation_numbers == number))
            if len(indices):
                changed[indices] = operation(changed[indices], level * sign[indices])
    return changed, None


Operation = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Takes images (n, height, width, channels) and a level from -1 to 1 for each; returns images of the same shape."""


def identity(images: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Return the images unchanged."""
    return images


def shear_x(images: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Shear horizontally: move rows in proportion to their distance from the centre."""
    return _resampled(images, along_x=(1.0, MAX_SHEAR * levels))


def shear_y(images: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Shear vertically: move columns in proportion to their distance from the centre."""
    return _resampled(images, along_y=(MAX_SHEAR * levels, 1.0))


def shift_x(images: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Shift to the side by whole pixels."""
    return _resampled(images, offset=(np.rint(MAX_SHIFT * levels * images.shape[2]), 0.0))


def shift_y(images: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Shift up or down by whole pixels."""
    return _resampled(images, offset=(0.0, np.rint(MAX_SHIFT * levels * images.shape[1])))


def rotate(images: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Rotate about the centre."""
    angles = np.deg2rad(MAX_DEGREES * levels)
    cosine, sine = np.cos(angles), np.sin(angles)
    return _resampled(images, along_x=(cosine, sine), along_y=(-sine, cosine))


def brightness(images: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Move towards black, or away from it."""
    return _extrapolate(np.zeros_like(images, dtype=np.float32), images, levels)


def contrast(images: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Move towards the mean grey of the image, or away from it."""
    return _extrapolate(np.rint(_grey(images).mean(axis=(1, 2), keepdims=True)), images, levels)


def colour(images: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Move towards the grey value of each pixel, or away from it."""
    return _extrapolate(_grey(images), images, levels)


def sharpness(images: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Move towards the smoothed image, or away from it. The outermost pixels stay as they are."""
    smooth: np.ndarray = images.astype(np.float32)
    if min(images.shape[1:3]) > 2:
        neighbourhoods = np.lib.stride_tricks.sliding_window_view(smooth, (3, 3), axis=(1, 2))
        smooth[:, 1:-1, 1:-1] = (neighbourhoods * SMOOTHING_KERNEL).sum(axis=(-2, -1))
    return _extrapolate(smooth, images, levels)


def posterize(images: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Set up to four of the lowest bits of each value to 0."""
    dropped_bits = np.rint(MAX_BITS * np.abs(levels)).astype(np.uint8)[:, None, None, None]
    return (images >> dropped_bits) << dropped_bits


def solarize(images: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Invert the values above a threshold."""
    threshold = (256 * (1 - np.abs(levels)))[:, None, None, None]
    return np.where(images >= threshold, 255 - images, images)


def autocontrast(images: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Stretch the values of each channel to the range from 0 to 255."""
    low, high = (extreme.astype(np.float32) for extreme in (images.min((1, 2), keepdims=True),
                                                            images.max((1, 2), keepdims=True)))  # fmt: skip
    stretched = np.rint((images - low) * (255 / np.maximum(high - low, 1)))
    return np.where(high > low, stretched, images).astype(np.uint8)


def equalize(images: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Flatten the histogram of each channel, as Pillow's ImageOps.equalize does."""
    equalized = images.copy()
    for image in equalized:
        for channel in range(image.shape[2]):
            image[..., channel] = _equalize_plane(image[..., channel])
    return equalized


OPERATIONS: tuple[Operation, ...] = (
    *(identity, autocontrast, equalize, rotate, solarize, colour, posterize, contrast, brightness, sharpness),
    *(shear_x, shear_y, shift_x, shift_y),
)


def _equalize_plane(plane: np.ndarray) -> np.ndarray:
    counts = np.bincount(plane.ravel(), minlength=256)
    values = np.flatnonzero(counts)
    step = (counts.sum() - counts[values[-1]]) // 255
    if len(values) < 2 or not step:
        return plane
    counts_below = np.concatenate([[0], np.cumsum(counts)[:-1]])
    table = np.minimum((counts_below + step // 2) // step, 255).astype(np.uint8)
    equalized: np.ndarray = table[plane]
    return equalized


def _grey(images: np.ndarray) -> np.ndarray:
    """Return grey images (n, height, width, 1) float32, rounded to whole numbers."""
    weights = LUMA if images.shape[3] == len(LUMA) else [1 / images.shape[3]] * images.shape[3]
    grey: np.ndarray = np.rint(images.astype(np.float32) @ np.array(weights, dtype=np.float32))
    return grey[..., None]


def _extrapolate(reference: np.ndarray, images: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Return reference + factor * (image - reference), with a factor of 1 at level 0."""
    factors = (1 + MAX_FACTOR * levels).astype(np.float32)[:, None, None, None]
    blended: np.ndarray = np.clip(np.rint(reference + factors * (images - reference)), 0, 255).astype(np.uint8)
    return blended


Number = float | np.ndarray


def _resampled(
    images: np.ndarray,
    along_x: tuple[Number, Number] = (1.0, 0.0),
    along_y: tuple[Number, Number] = (0.0, 1.0),
    offset: tuple[Number, Number] = (0.0, 0.0),
) -> np.ndarray:
    """Resample images by an affine map, which gives for each pixel the position from which its value is read.

    Positions are counted from the centre of the image. For the pixel at (x, y), `along_x` has the factors of x and y in
    the source's x, `along_y` those in the source's y, and `offset` is added. Pixels whose source lies outside the image
    become 0.
    """
    count, height, width = images.shape[:3]
    y, x = np.mgrid[:height, :width] - np.array([(height - 1) / 2, (width - 1) / 2])[:, None, None]

    def source_indices(factors: tuple[Number, Number], shift: Number, side: int) -> np.ndarray:
        x_factor, y_factor, added = (np.broadcast_to(each, count)[:, None, None] for each in (*factors, shift))
        indices: np.ndarray = np.rint(x_factor * x + y_factor * y + added + (side - 1) / 2).astype(np.int64)
        return indices

    columns, rows = source_indices(along_x, offset[0], width), source_indices(along_y, offset[1], height)
    is_inside = (columns >= 0) & (columns < width) & (rows >= 0) & (rows < height)
    image_numbers = np.arange(count)[:, None, None]
    pixels = images[image_numbers, np.clip(rows, 0, height - 1), np.clip(columns, 0, width - 1)]
    return np.where(is_inside[..., None], pixels, 0).astype(np.uint8)
