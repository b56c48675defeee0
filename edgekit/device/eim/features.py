"""Convert the numbers that Edge Impulse's clients send into a raw sample of the bundle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.device.eim.parameters import feature_count
from edgekit.runner.errors import InputError

if TYPE_CHECKING:
    from edgekit.runner.bundle.manifest import RawSpec

HIGHEST_PIXEL = 0xFFFFFF
RED, GREEN, BLUE, HALF = 19595, 38470, 7471, 1 << 15
"""Weights of the grey value in 65536ths, and what rounds them, as Pillow converts a picture to grey."""


def to_sample(features: Sequence[Any] | np.ndarray, raw: RawSpec) -> np.ndarray:
    """Return the raw sample for a list of numbers, or for float32 values (features,).

    A pixel is the number 0xRRGGBB, sound is in the range of int16, and rows of sensor values follow one another. A
    pixel of a grey picture is converted to grey as Pillow does, which changes nothing if red, green and blue are equal.

    Raises
    ------
    InputError
        These are not as many finite numbers as the bundle takes, or numbers that its samples cannot hold.
    """
    values = _numbers(features, feature_count(raw))
    if raw.kind == "image":
        return _picture(values, raw.shape)
    if raw.kind == "audio":
        return values.astype(np.float32) / np.float32(1 << 15)
    dtype = np.dtype(raw.dtype)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        _check_integers(values, limits.min, limits.max, dtype.name)
    with np.errstate(over="ignore"):  # what overflows becomes infinite, which the model refuses
        return values.astype(dtype).reshape(raw.shape)


def _numbers(features: Sequence[Any] | np.ndarray, count: int) -> np.ndarray:
    if len(features) != count:
        raise InputError(f"got {len(features)} features; the bundle takes {count}")
    try:
        values = np.asarray(features)
    except ValueError:
        values = np.empty(0)
    if values.shape != (count,) or values.dtype.kind not in "iuf":
        raise InputError("the features are not all numbers; send a flat list of them")
    if not np.isfinite(values).all():
        raise InputError("the features hold NaN or infinity; check the sensor")
    return values


def _picture(values: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    _check_integers(values, 0, HIGHEST_PIXEL, "pixel 0xRRGGBB")
    pixels = values.astype(np.int64)
    red, green, blue = pixels >> 16, pixels >> 8 & 255, pixels & 255
    if shape[2] == 3:
        return np.stack([red, green, blue], axis=-1).astype(np.uint8).reshape(shape)
    return (red * RED + green * GREEN + blue * BLUE + HALF >> 16).astype(np.uint8).reshape(shape)


def _check_integers(values: np.ndarray, low: int, high: int, what: str) -> None:
    is_wrong = (values < low) | (values > high)
    if values.dtype.kind == "f":
        is_wrong |= values != np.rint(values)
    if is_wrong.any():
        first = int(is_wrong.argmax())
        raise InputError(f"feature {first} is {values[first]:.10g}; a {what} is a whole number from {low} to {high}")
