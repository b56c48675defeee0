"""Checks of the preprocess steps, a declarative list that has the same keys in a config and in a bundle.

A step is, for example, `{"step": "scale", "factor": 0.00392156862745098}`. This module needs no NumPy, so that errors
are reported on a device without NumPy too. `transform.py` does the arithmetic.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from edgekit.runner.errors import InputError
from edgekit.runner.rules import is_count

Step = Mapping[str, Any]
Shape = tuple[int, ...]

STEPS: dict[str, tuple[str, ...]] = {
    "resize": ("height", "width"),
    "channels": ("count",),
    "bgr": (),
    "scale": ("factor",),
    "normalize": ("mean", "std"),
    "log_mel": ("rate_hz", "window_samples", "hop_samples", "fft_samples", "mels", "low_hz", "high_hz", "floor"),
}
RAW_DTYPES = ("uint8", "int8", "float32", "int32")
GEOMETRY = frozenset({"resize", "channels", "bgr"})
"""Steps that do not change the meaning of a number, so that integers can stay integers."""
LARGEST_SIDE = 16384
LARGEST_FLOAT32 = (2 - 2**-23) * 2.0**127


def check(steps: Sequence[Step], raw_shape: Sequence[int], raw_dtype: str) -> Shape:
    """Return the shape that the steps give one raw sample. InputError names the step, the value and the fix."""
    shape = tuple(raw_shape)
    if str(raw_dtype) not in RAW_DTYPES:
        raise InputError(f"raw dtype: got {raw_dtype!r}; use one of {', '.join(RAW_DTYPES)}")
    if len(shape) not in (1, 2, 3) or not all(is_count(side) for side in shape):
        raise InputError(
            f"raw shape: got {list(shape)!r}; use [height, width, channels], [features] or [time, channels]"
        )
    if str(raw_dtype) == "int32" and steps:
        name = _check_keys(steps[0], 0)
        raise InputError(f"preprocess[0] {name}: the samples are token ids, which are names, not numbers; remove it")
    if len(shape) == 3 and shape[2] not in (1, 3):
        raise InputError(f"raw shape: got {shape[2]} channels; images have 1 or 3")
    for position, step in enumerate(steps):
        name = _check_keys(step, position)
        shape = _CHECKS[name](step, shape, f"preprocess[{position}] {name}")
    return shape


def check_keys(steps: Sequence[Step]) -> None:
    """Check that every step exists and has exactly its options. Unlike `check`, this needs no shape of a sample."""
    for position, step in enumerate(steps):
        _check_keys(step, position)


def _check_keys(step: Step, position: int) -> str:
    where = f"preprocess[{position}]"
    if not isinstance(step, Mapping) or not isinstance(step.get("step"), str):
        raise InputError(f'{where}: got {step!r}; write {{"step": "scale", "factor": 0.0039}}')
    name: str = step["step"]
    if name not in STEPS:
        raise InputError(f"{where}: unknown step {name!r}{_suggestion(name, STEPS)}")
    option_names = STEPS[name]
    for key in step:
        if key != "step" and key not in option_names:
            raise InputError(f"{where} {name}: unknown option {key!r}{_suggestion(str(key), option_names)}")
    for key in option_names:
        if key not in step:
            raise InputError(f"{where} {name}: missing option {key!r}")
    return name


def _suggestion(word: str, candidates: Any) -> str:
    import difflib

    close = difflib.get_close_matches(word, list(candidates), n=1, cutoff=0.55)
    return f', did you mean "{close[0]}"?' if close else "; known: " + ", ".join(sorted(candidates))


def _check_resize(step: Step, shape: Shape, where: str) -> Shape:
    _need_image(shape, where)
    for key in ("height", "width"):
        if not is_count(step[key]) or step[key] > LARGEST_SIDE:
            raise InputError(f"{where}.{key}: got {step[key]!r}; use a whole number from 1 to {LARGEST_SIDE}")
    return (step["height"], step["width"], shape[2])


def _check_channels(step: Step, shape: Shape, where: str) -> Shape:
    _need_image(shape, where)
    if not is_count(step["count"]) or step["count"] not in (1, 3):
        raise InputError(f"{where}.count: got {step['count']!r}; use 1 (grey) or 3 (RGB)")
    return (shape[0], shape[1], step["count"])


def _check_bgr(step: Step, shape: Shape, where: str) -> Shape:
    _need_image(shape, where)
    if shape[2] != 3:
        raise InputError(f"{where}: got {shape[2]} channel; only pictures in colour have an order of channels")
    return shape


def _check_scale(step: Step, shape: Shape, where: str) -> Shape:
    factor = step["factor"]
    if not _is_number(factor) or _float32(factor) == 0:
        raise InputError(f"{where}.factor: got {factor!r}; use a finite number other than 0, e.g. 1/255 = 0.0039215686")
    return shape


def _check_normalize(step: Step, shape: Shape, where: str) -> Shape:
    for key in ("mean", "std"):
        values = step[key]
        if not isinstance(values, (list, tuple)) or len(values) not in (1, shape[-1]):
            raise InputError(f"{where}.{key}: got {values!r}; use a list of 1 or {shape[-1]} numbers")
        if not all(_is_number(value) for value in values):
            raise InputError(f"{where}.{key}: got {values!r}; every entry must be a finite number")
    if not all(_float32(value) > 0 for value in step["std"]):
        raise InputError(f"{where}.std: got {step['std']!r}; every entry must be above 0")
    return shape


def _check_log_mel(step: Step, shape: Shape, where: str) -> Shape:
    if len(shape) != 1:
        raise InputError(f"{where}: works on sounds, but the sample has shape {list(shape)}; make it the first step")
    for key in ("rate_hz", "window_samples", "hop_samples", "fft_samples", "mels"):
        if not is_count(step[key]) or step[key] > LARGEST_SIDE * 16:
            raise InputError(f"{where}.{key}: got {step[key]!r}; use a whole number above 0")
    window, size, rate_hz = step["window_samples"], step["fft_samples"], step["rate_hz"]
    if window > shape[0]:
        raise InputError(f"{where}.window_samples: got {window}; the sample has {shape[0]}, so no window fits")
    if size & (size - 1) or not window <= size <= LARGEST_SIDE:
        raise InputError(f"{where}.fft_samples: got {size}; use a power of two from {window} to {LARGEST_SIDE}")
    for key in ("low_hz", "high_hz", "floor"):
        if not _is_number(step[key]):
            raise InputError(f"{where}.{key}: got {step[key]!r}; use a number")
    if not 0 <= step["low_hz"] < step["high_hz"] <= rate_hz / 2:
        raise InputError(
            f"{where}: got low_hz {step['low_hz']:g} and high_hz {step['high_hz']:g}; they must rise from "
            f"0 to at most half of rate_hz, {rate_hz / 2:g}"
        )
    if _float32(step["floor"]) <= 0:
        raise InputError(f"{where}.floor: got {step['floor']!r}; use a number above 0, e.g. 1e-6")
    return (1 + (shape[0] - window) // step["hop_samples"], step["mels"], 1)


def _need_image(shape: Shape, where: str) -> None:
    if len(shape) != 3:
        kind = "window" if len(shape) == 2 else "vector"
        raise InputError(
            f"{where}: works on images, but the sample is a {kind} of shape {list(shape)}; remove the step"
        )


def _float32(value: float) -> float:
    rounded: float = struct.unpack("<f", struct.pack("<f", value))[0]
    return rounded


def _is_number(value: Any) -> bool:
    is_real = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_real and math.isfinite(value) and abs(value) < LARGEST_FLOAT32


_CHECKS = {
    "resize": _check_resize,
    "channels": _check_channels,
    "bgr": _check_bgr,
    "scale": _check_scale,
    "normalize": _check_normalize,
    "log_mel": _check_log_mel,
}
