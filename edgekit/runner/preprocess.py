"""Preprocess steps: one declarative list, run by this code in training, in evaluation and on the device.

A step is `{"step": "scale", "factor": 0.00392156862745098}`. Samples are HWC images or vectors; leading axes are
free, so the same call serves one sample and a batch. Everything is element-wise float32 arithmetic (no BLAS, no
fused multiply-add), so that every machine computes the same bits.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from edgekit.runner.errors import InputError

Step = Mapping[str, Any]
Transform = Callable[[np.ndarray], np.ndarray]
Shape = tuple[int, ...]

STEPS: dict[str, tuple[str, ...]] = {
    "resize": ("height", "width"),
    "channels": ("count",),
    "scale": ("factor",),
    "normalize": ("mean", "std"),
}
RAW_DTYPES = ("uint8", "float32")
LUMA = (0.299, 0.587, 0.114)  # ITU-R BT.601, as Pillow's convert("L")
LARGEST_SIDE = 16384


def check(steps: Sequence[Step], raw_shape: Sequence[int], raw_dtype: str) -> Shape:
    """Shape that the steps make of one raw sample; InputError names the step, the value and the fix."""
    shape = tuple(raw_shape)
    if str(raw_dtype) not in RAW_DTYPES:
        raise InputError(f"raw dtype: got {raw_dtype!r}; use one of {', '.join(RAW_DTYPES)}")
    if len(shape) not in (1, 3) or not all(_is_count(side) for side in shape):
        raise InputError(f"raw shape: got {list(shape)!r}; use [height, width, channels] or [features]")
    if len(shape) == 3 and shape[2] not in (1, 3):
        raise InputError(f"raw shape: got {shape[2]} channels; images have 1 or 3")
    for position, step in enumerate(steps):
        name = _check_keys(step, position)
        shape = _CHECKS[name](step, shape, f"preprocess[{position}] {name}")
    return shape


def check_keys(steps: Sequence[Step]) -> None:
    """What `check` can say before a sample's shape is known: that every step is one, and has its options."""
    for position, step in enumerate(steps):
        _check_keys(step, position)


def apply(steps: Sequence[Step], raw: np.ndarray) -> np.ndarray:
    """Float32 array from raw samples, one or many; `check` the steps first."""
    return pipeline(steps)(raw)


def pipeline(steps: Sequence[Step]) -> Transform:
    """The steps as one function, for calling it often. It may return its argument when there is nothing to do."""
    transforms = [_MAKERS[step["step"]](step) for step in steps]

    def run(raw: np.ndarray) -> np.ndarray:
        x = raw
        for transform in transforms:
            x = transform(x)
        return x if x.dtype == np.float32 else x.astype(np.float32)

    return run


def to_layout(x: np.ndarray, layout: str) -> np.ndarray:
    """A batch (n, height, width, channels) or (n, features), contiguous in the layout a model wants."""
    if layout == "NCHW":
        x = x.transpose(0, 3, 1, 2)
    return np.ascontiguousarray(x)


def _check_keys(step: Step, position: int) -> str:
    where = f"preprocess[{position}]"
    if not isinstance(step, Mapping) or not isinstance(step.get("step"), str):
        raise InputError(f'{where}: got {step!r}; write {{"step": "scale", "factor": 0.0039}}')
    name: str = step["step"]
    if name not in STEPS:
        raise InputError(f"{where}: unknown step {name!r}{_meant(name, STEPS)}")
    wanted = STEPS[name]
    for key in step:
        if key != "step" and key not in wanted:
            raise InputError(f"{where} {name}: unknown option {key!r}{_meant(str(key), wanted)}")
    for key in wanted:
        if key not in step:
            raise InputError(f"{where} {name}: missing option {key!r}")
    return name


def _meant(word: str, known: Any) -> str:
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.55)
    return f', did you mean "{close[0]}"?' if close else "; known: " + ", ".join(sorted(known))


def _check_resize(step: Step, shape: Shape, where: str) -> Shape:
    _need_image(shape, where)
    for key in ("height", "width"):
        if not _is_count(step[key]) or step[key] > LARGEST_SIDE:
            raise InputError(f"{where}.{key}: got {step[key]!r}; use a whole number from 1 to {LARGEST_SIDE}")
    return (step["height"], step["width"], shape[2])


def _check_channels(step: Step, shape: Shape, where: str) -> Shape:
    _need_image(shape, where)
    if not _is_count(step["count"]) or step["count"] not in (1, 3):
        raise InputError(f"{where}.count: got {step['count']!r}; use 1 (grey) or 3 (RGB)")
    return (shape[0], shape[1], step["count"])


def _check_scale(step: Step, shape: Shape, where: str) -> Shape:
    factor = step["factor"]
    if not _is_number(factor) or np.float32(factor) == 0:
        raise InputError(f"{where}.factor: got {factor!r}; use a finite number other than 0, e.g. 1/255 = 0.0039215686")
    return shape


def _check_normalize(step: Step, shape: Shape, where: str) -> Shape:
    for key in ("mean", "std"):
        values = step[key]
        if not isinstance(values, (list, tuple)) or len(values) not in (1, shape[-1]):
            raise InputError(f"{where}.{key}: got {values!r}; use a list of 1 or {shape[-1]} numbers")
        if not all(_is_number(value) for value in values):
            raise InputError(f"{where}.{key}: got {values!r}; every entry must be a finite number")
    if not all(np.float32(value) > 0 for value in step["std"]):
        raise InputError(f"{where}.std: got {step['std']!r}; every entry must be above 0")
    return shape


def _need_image(shape: Shape, where: str) -> None:
    if len(shape) != 3:
        raise InputError(f"{where}: works on images, the sample is a vector of shape {list(shape)}; remove the step")


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _is_number(value: Any) -> bool:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return number and math.isfinite(value) and abs(value) < float(np.finfo(np.float32).max)


def _make_resize(step: Step) -> Transform:
    """Triangle filter over pixel centres, widened when shrinking: Pillow's BILINEAR without its rounding to bytes."""
    height, width = step["height"], step["width"]

    def resize(x: np.ndarray) -> np.ndarray:
        x = x if x.dtype == np.float32 else x.astype(np.float32)
        return _resample(_resample(x, width, axis=-2), height, axis=-3)

    return resize


def _resample(x: np.ndarray, size: int, axis: int) -> np.ndarray:
    before = x.shape[axis]
    if before == size:
        return x
    positions, weights = _taps(before, size)
    trailing = (1,) * (-axis - 1)
    out = np.zeros((*x.shape[: x.ndim + axis], size, *x.shape[x.ndim + axis + 1 :]), dtype=np.float32)
    for position, weight in zip(positions, weights):
        out += np.take(x, position, axis=axis) * weight.reshape(-1, *trailing)
    return out


def _taps(before: int, after: int) -> tuple[np.ndarray, np.ndarray]:
    """Source positions and float32 weights, both (taps, after); each output's weights add up to one."""
    ratio = before / after
    reach = max(ratio, 1.0)
    centres = (np.arange(after) + 0.5) * ratio
    first = np.maximum((centres - reach + 0.5).astype(np.int64), 0)
    positions = first + np.arange(2 * math.ceil(reach) + 1)[:, None]
    weights = np.maximum(0.0, 1.0 - np.abs((positions + 0.5 - centres) / reach))
    weights[positions >= before] = 0.0
    weights /= weights.sum(axis=0)
    return np.minimum(positions, before - 1), weights.astype(np.float32)


def _make_channels(step: Step) -> Transform:
    count = step["count"]
    red, green, blue = (np.float32(part) for part in LUMA)

    def channels(x: np.ndarray) -> np.ndarray:
        if x.shape[-1] == count:
            return x
        if count == 3:
            return np.repeat(x, 3, axis=-1)
        x = x.astype(np.float32, copy=False)
        return x[..., 0:1] * red + x[..., 1:2] * green + x[..., 2:3] * blue

    return channels


def _make_scale(step: Step) -> Transform:
    factor = np.float32(step["factor"])
    return lambda x: np.multiply(x, factor, dtype=np.float32)


def _make_normalize(step: Step) -> Transform:
    mean = np.asarray(step["mean"], dtype=np.float32)
    std = np.asarray(step["std"], dtype=np.float32)

    def normalize(x: np.ndarray) -> np.ndarray:
        centred = np.subtract(x, mean, dtype=np.float32)
        centred /= std
        return centred

    return normalize


_CHECKS = {
    "resize": _check_resize,
    "channels": _check_channels,
    "scale": _check_scale,
    "normalize": _check_normalize,
}
_MAKERS: dict[str, Callable[[Step], Transform]] = {
    "resize": _make_resize,
    "channels": _make_channels,
    "scale": _make_scale,
    "normalize": _make_normalize,
}
