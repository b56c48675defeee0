"""Random shifts and mirror images of raw batches, on the CPU by numpy: images (N, H, W, C), windows (N, time, C)."""

from __future__ import annotations

import numpy as np

from edgekit.core.errors import ConfigError

SHIFT_FRACTION = 1 / 8


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


def mirror(images: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Each image mirrored left to right, or not."""
    chosen = random.random(len(images)) < 0.5
    return np.where(chosen[:, None, None, None], images[:, :, ::-1], images)
