"""Random shifts and mirror images of raw batches, on the CPU by numpy: images (N, H, W, C), windows (N, time, C)."""

from __future__ import annotations

import numpy as np

from edgekit.core.errors import ConfigError
from edgekit.runner.masks import UNKNOWN

SHIFT_FRACTION = 1 / 8
LEAST_LEFT = 0.4
"""Of a box that a shift moves over the edge."""


def augment(images: np.ndarray, kind: str, random: np.random.Generator) -> np.ndarray:
    """`none`, `shift` (up to an eighth of each side, filled with zeros) or `shift_flip` (and left-right mirrors)."""
    if kind == "none":
        return images
    shifted = shift(images, random)
    return mirror(shifted, random) if kind == "shift_flip" else shifted


def augment_windows(windows: np.ndarray, kind: str, random: np.random.Generator) -> np.ndarray:
    """`none` or `shift` (up to an eighth of the time either way); ConfigError for `shift_flip`.

    A recording of a walk played backwards is no walk, and neither is one whose axes point the other way. No mirror
    image of a window is valid for every sensor.
    """
    if kind == "shift_flip":
        raise ConfigError(
            "augment: got 'shift_flip', and the samples are windows: mirrored, time would run backwards; use shift"
        )
    return windows if kind == "none" else shift_in_time(windows, random)


def shift_in_time(windows: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Each window moved by its own number of moments; the first or last moment stands where it has none.

    Not zeros, as with images: a sensor at rest may well show 9.81, and a jump from there to 0 is a movement.
    """
    count, time = windows.shape[:2]
    most = round(time * SHIFT_FRACTION)
    later = random.integers(-most, most + 1, count)
    places = np.clip(np.arange(time) - later[:, None], 0, time - 1)
    return np.take_along_axis(windows, places[:, :, None], axis=1)


def shift(images: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Each image moved by its own whole number of pixels."""
    count, height, width = images.shape[:3]
    down, right = round(height * SHIFT_FRACTION), round(width * SHIFT_FRACTION)
    padded = np.pad(images, ((0, 0), (down, down), (right, right), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (height, width), axis=(1, 2))
    rows, columns = random.integers(0, 2 * down + 1, count), random.integers(0, 2 * right + 1, count)
    return np.ascontiguousarray(windows[np.arange(count), rows, columns].transpose(0, 2, 3, 1))


def augment_boxes(
    images: np.ndarray, labels: np.ndarray, kind: str, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """As `augment`, the labels (N, 1 + most, 5) of a detection with them; a box of which too little is left goes."""
    if kind == "none":
        return images, labels
    height, width = images.shape[1:3]
    down, right = _shifts(images, random)
    moved = _shifted(images, down, right)
    labels = _moved(labels, right, down, width, height)
    if kind == "shift_flip":
        chosen = random.random(len(images)) < 0.5
        moved = np.where(chosen[:, None, None, None], moved[:, :, ::-1], moved)
        mirrored = labels.copy()
        mirrored[:, 1:, 1], mirrored[:, 1:, 3] = width - labels[:, 1:, 3], width - labels[:, 1:, 1]
        labels = np.where(chosen[:, None, None], mirrored, labels)
    return moved, labels


def augment_masks(
    images: np.ndarray, masks: np.ndarray, kind: str, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """As `augment`, the masks (N, H, W) of a segmentation with them; what a shift uncovers is of no class."""
    if kind == "none":
        return images, masks
    down, right = _shifts(images, random)
    images, masks = _shifted(images, down, right), _shifted(masks, down, right, UNKNOWN)
    if kind == "shift_flip":
        chosen = random.random(len(images)) < 0.5
        images = np.where(chosen[:, None, None, None], images[:, :, ::-1], images)
        masks = np.where(chosen[:, None, None], masks[:, :, ::-1], masks)
    return images, masks


def _shifts(images: np.ndarray, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Whole numbers of pixels, down and to the right, for each image."""
    down, right = (
        random.integers(-round(side * SHIFT_FRACTION), round(side * SHIFT_FRACTION) + 1, len(images))
        for side in images.shape[1:3]
    )
    return down, right


def _shifted(arrays: np.ndarray, down: np.ndarray, right: np.ndarray, fill: int = 0) -> np.ndarray:
    """(N, H, W, …), each moved by its own numbers of pixels."""
    height, width = arrays.shape[1:3]
    moved = np.full_like(arrays, fill)
    for array, target, y, x in zip(arrays, moved, down, right, strict=True):
        into = np.s_[max(0, y) : height + min(0, y), max(0, x) : width + min(0, x)]
        out_of = np.s_[max(0, -y) : height + min(0, -y), max(0, -x) : width + min(0, -x)]
        target[into] = array[out_of]
    return moved


def _moved(labels: np.ndarray, right: np.ndarray, down: np.ndarray, width: int, height: int) -> np.ndarray:
    moved, limits = labels.copy(), np.array([width, height, width, height], dtype=labels.dtype)
    by = np.stack([right, down, right, down], axis=1).astype(labels.dtype)
    before = labels[:, 1:, 1:]
    after = np.clip(before + by[:, None], 0, limits)
    shares = _area(after) / np.maximum(_area(before), 1e-6)
    moved[:, 1:, 1:] = after
    moved[:, 1:, 0] = np.where(shares >= LEAST_LEFT, labels[:, 1:, 0], -1)
    return moved


def _area(sides: np.ndarray) -> np.ndarray:
    found: np.ndarray = (sides[..., 2] - sides[..., 0]) * (sides[..., 3] - sides[..., 1])
    return found


def mirror(images: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Each image mirrored left to right, or not."""
    chosen = random.random(len(images)) < 0.5
    return np.where(chosen[:, None, None, None], images[:, :, ::-1], images)
