"""Affine preprocess steps as a part of a file: a sample's bytes then go in as they are.

Of bytes b a quantized input says `scale * (b - zero point)`, one scale for all channels. Whether steps say the same is
no question of algebra alone, for they round: so all 256 bytes are tried. Other files get operators in front, with a
scale and a shift for each channel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from edgekit.models.spec import read_spec
from edgekit.runner.input_encoding import ELEMENTWISE
from edgekit.runner.preprocess import transform

BYTES = np.arange(256, dtype=np.uint8)


class Affine(NamedTuple):
    """`scale * byte + shift`, float32, of one number for all channels or one for each."""

    scale: np.ndarray
    shift: np.ndarray


def byte_values(preprocess: Sequence[Mapping[str, Any]], raw: Mapping[str, Any]) -> np.ndarray | str:
    """What the steps make of each byte, (256,) float32, rising; or why they cannot be folded.

    Parameters
    ----------
    preprocess
        The steps.
    raw
        What the samples are, as a model's specification has it: `dtype`, and `shape` with the channels last.
    """
    columns = _of_channels(preprocess, raw)
    if isinstance(columns, str):
        return columns
    values: np.ndarray = np.ascontiguousarray(columns[:, 0])
    if (columns != values[:, None]).any():
        return "normalize has numbers of its own for each channel, and a file's input has one scale"
    return values


def channel_affine(preprocess: Sequence[Mapping[str, Any]], raw: Mapping[str, Any]) -> Affine | str:
    """What the steps multiply a byte with and add to it, of a picture channel by channel; or why they cannot be folded.

    The parameters are those of `of_bytes`.
    """
    columns = _of_channels(preprocess, raw)
    if isinstance(columns, str):
        return columns
    if (columns == columns[:, :1]).all():
        columns = columns[:, :1]
    elif raw.get("kind") != "image":
        return "normalize has numbers of its own for each feature"
    shift = columns[0].astype(np.float64)
    return Affine(((columns[-1] - shift) / (len(columns) - 1)).astype(np.float32), columns[0].astype(np.float32))


def model_affine(model_folder: Path) -> Affine | str:
    """The same of a saved network."""
    spec = read_spec(model_folder)
    return channel_affine(spec.preprocess, spec.raw)


def _of_channels(preprocess: Sequence[Mapping[str, Any]], raw: Mapping[str, Any]) -> np.ndarray | str:
    """What the steps make of each byte of each channel, (256, channels) float32, rising."""
    if raw.get("dtype") != "uint8":
        return f"the samples are {raw.get('dtype')} and no bytes"
    if not preprocess:
        return "there is no step to fold"
    other = next((step["step"] for step in preprocess if step["step"] not in ELEMENTWISE), None)
    if other is not None:
        return f"{other} is no affine step"
    columns: np.ndarray = transform.apply(preprocess, np.repeat(BYTES[:, None], raw["shape"][-1], axis=1))
    if not (np.diff(columns, axis=0) > 0).all():
        return "the steps do not rise from byte to byte"
    return columns


def find_scale(values: np.ndarray) -> tuple[float, int] | str:
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
