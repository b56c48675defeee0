"""Random shifts and mirror images of raw image batches, (N, H, W, C), on the CPU by numpy."""

from __future__ import annotations

import numpy as np

SHIFT_FRACTION = 1 / 8


def augment(images: np.ndarray, kind: str, random: np.random.Generator) -> np.ndarray:
    """`none`, `shift` (up to an eighth of each side, filled with zeros) or `shift_flip` (and left-right mirrors)."""
    if kind == "none":
        return images
    shifted = shift(images, random)
    return mirror(shifted, random) if kind == "shift_flip" else shifted


def shift(images: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Each image moved by its own whole number of pixels."""
    count, height, width = images.shape[:3]
    down, right = round(height * SHIFT_FRACTION), round(width * SHIFT_FRACTION)
    padded = np.pad(images, ((0, 0), (down, down), (right, right), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (height, width), axis=(1, 2))
    rows, columns = random.integers(0, 2 * down + 1, count), random.integers(0, 2 * right + 1, count)
    return np.ascontiguousarray(windows[np.arange(count), rows, columns].transpose(0, 2, 3, 1))


def mirror(images: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Each image mirrored left to right, or not."""
    chosen = random.random(len(images)) < 0.5
    return np.where(chosen[:, None, None, None], images[:, :, ::-1], images)
