"""Affine preprocess steps as the scale of a file's input: a sample's bytes then go in as they are.

Of bytes b a quantized input says `scale * (b - zero point)`, one scale for all channels. Whether steps say the same is
no question of algebra alone, for they round: so all 256 bytes are tried.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from edgekit.runner.encode import ELEMENTWISE
from edgekit.runner.preprocess import transform

BYTES = np.arange(256, dtype=np.uint8)


def of_bytes(preprocess: Sequence[Mapping[str, Any]], raw: Mapping[str, Any]) -> np.ndarray | str:
    """What the steps make of each byte, (256,) float32, rising; or why they cannot be folded.

    Parameters
    ----------
    preprocess
        The steps.
    raw
        What the samples are, as a model's specification has it: `dtype`, and `shape` with the channels last.
    """
    if raw.get("dtype") != "uint8":
        return f"the samples are {raw.get('dtype')} and no bytes"
    if not preprocess:
        return "there is no step to fold"
    other = next((step["step"] for step in preprocess if step["step"] not in ELEMENTWISE), None)
    if other is not None:
        return f"{other} is no affine step"
    columns = transform.apply(preprocess, np.repeat(BYTES[:, None], raw["shape"][-1], axis=1))
    values: np.ndarray = np.ascontiguousarray(columns[:, 0])
    if (columns != values[:, None]).any():
        return "normalize has numbers of its own for each channel, and a file's input has one scale"
    if not (np.diff(values) > 0).all():
        return "the steps do not rise from byte to byte"
    return values


def grid(values: np.ndarray) -> tuple[float, int] | str:
    """Scale and zero point that give each byte's value (256,) bit for bit in float32; or why there are none."""
    mean = (float(values[-1]) - float(values[0])) / (len(values) - 1)
    place = -float(values[0]) / mean
    zero = round(place)
    if not 0 <= zero < len(values):
        return f"zero is no byte: it would be {place:.4g}"
    for scale in _near(mean, values, zero):
        if ((BYTES - np.float32(zero)) * scale == values).all():
            return float(scale), zero
    return f"one scale gives other last bits; zero is byte {place:.4g}, and a zero point is a whole number"


def _near(mean: float, values: np.ndarray, zero: int) -> list[np.float32]:
    """Numbers that the scale may be."""
    found = [np.float32(mean)]
    for way in (np.float32(0), np.float32(np.inf)):
        found.append(np.nextafter(found[0], way))
    beside = zero + 1 if zero < len(values) - 1 else zero - 1
    return [np.float32(abs(values[beside])), *found]
