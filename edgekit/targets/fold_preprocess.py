"""Fold affine preprocess steps into a model file, so that it takes the bytes of raw samples.

A quantized input interprets bytes b as `scale * (b - zero point)`, with one scale for all channels. The steps round
their results, so algebra cannot show whether they give the same values as this formula; all 256 bytes are tried
instead. Other files get operators at their input, with a scale and a shift for each channel.
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
    """`scale * byte + shift` in float32, with one number for all channels or one for each channel."""

    scale: np.ndarray
    shift: np.ndarray


def byte_values(preprocess: Sequence[Mapping[str, Any]], raw: Mapping[str, Any]) -> np.ndarray | str:
    """Return the value of each byte after the steps, (256,) float32, increasing; or why the steps cannot be folded.

    Parameters
    ----------
    preprocess
        The steps.
    raw
        The description of the samples in a model's spec: `dtype`, and `shape` with the channels last.
    """
    columns = _values_by_channel(preprocess, raw)
    if isinstance(columns, str):
        return columns
    values: np.ndarray = np.ascontiguousarray(columns[:, 0])
    if (columns != values[:, None]).any():
        return "normalize has different numbers for each channel, but a file's input has one scale"
    return values


def channel_affine(preprocess: Sequence[Mapping[str, Any]], raw: Mapping[str, Any]) -> Affine | str:
    """Return the scale and shift that the steps apply to a byte; or why the steps cannot be folded.

    For images they may differ by channel. The parameters are those of `byte_values`.
    """
    columns = _values_by_channel(preprocess, raw)
    if isinstance(columns, str):
        return columns
    if (columns == columns[:, :1]).all():
        columns = columns[:, :1]
    elif raw.get("kind") != "image":
        return "normalize has different numbers for each feature"
    shift = columns[0].astype(np.float64)
    return Affine(((columns[-1] - shift) / (len(columns) - 1)).astype(np.float32), columns[0].astype(np.float32))


def model_affine(model_folder: Path) -> Affine | str:
    """Return the scale and shift of a saved network's preprocess steps; or why the steps cannot be folded."""
    spec = read_spec(model_folder)
    return channel_affine(spec.preprocess, spec.raw)


def _values_by_channel(preprocess: Sequence[Mapping[str, Any]], raw: Mapping[str, Any]) -> np.ndarray | str:
    """Return the value of each byte of each channel after the steps, (256, channels) float32, increasing."""
    if raw.get("dtype") != "uint8":
        return f"the samples are {raw.get('dtype')}, not bytes"
    if not preprocess:
        return "there is no step to fold"
    other = next((step["step"] for step in preprocess if step["step"] not in ELEMENTWISE), None)
    if other is not None:
        return f"{other} is not an affine step"
    columns: np.ndarray = transform.apply(preprocess, np.repeat(BYTES[:, None], raw["shape"][-1], axis=1))
    if not (np.diff(columns, axis=0) > 0).all():
        return "the values do not increase from byte to byte"
    return columns


def find_scale(values: np.ndarray) -> tuple[float, int] | str:
    """Find the scale and zero point that give the value of each byte (256,) bit for bit; or say why there are none."""
    mean = (float(values[-1]) - float(values[0])) / (len(values) - 1)
    exact_zero = -float(values[0]) / mean
    zero = round(exact_zero)
    if not 0 <= zero < len(values):
        return f"zero is not a byte: it would be {exact_zero:.4g}"
    for scale in _scale_candidates(mean, values, zero):
        if ((BYTES - np.float32(zero)) * scale == values).all():
            return float(scale), zero
    return f"a single scale gives other last bits; zero is byte {exact_zero:.4g}, and a zero point is a whole number"


def _scale_candidates(mean: float, values: np.ndarray, zero: int) -> list[np.float32]:
    """Return candidates for the scale: the value of the byte next to `zero`, and `mean` with its float32 neighbours."""
    candidates = [np.float32(mean)]
    for direction in (np.float32(0), np.float32(np.inf)):
        candidates.append(np.nextafter(candidates[0], direction))
    neighbour = zero + 1 if zero < len(values) - 1 else zero - 1
    return [np.float32(abs(values[neighbour])), *candidates]
