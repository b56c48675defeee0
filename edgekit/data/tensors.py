"""Samples of several tensors, out of arrays by name: joined as the runner joins them (`runner/input_vector.py`).

The tensor `picture` of the train split is `x_train.picture`, or `picture` in a dict under `x_train`. An array is
(n, …): floats, which become float32, or whole numbers, which stay whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from edgekit.core.errors import DataError
from edgekit.data.types import usual_range
from edgekit.runner.input_vector import LARGEST, join

Tensor = dict[str, Any]
"""One of `RawSpec.tensors`."""
BYTES = ("uint8", "int8")
WINDOW_AXES = 2
"""Of (time, channels): a sensor may later show more than it did, so that windows have no range (`Data.raw_range`)."""


def joined(found: Mapping[str, Any], splits: Iterable[str], origin: str) -> tuple[dict[str, Any], tuple[Tensor, ...]]:
    """The arrays with `x_train` and the like (n, width) float32, and the tensors; none where the samples are arrays.

    DataError, beginning with `origin`, for tensors that do not fit each other.
    """
    plain, parts = _apart(found)
    if not parts:
        return plain, ()
    given = {split: parts[f"x_{split}"] for split in splits if f"x_{split}" in parts}
    if both := [f"x_{split}" for split in splits if f"x_{split}" in plain]:
        raise DataError(
            f"{origin}: {both[0]} is one array, and others are tensors by name; give {both[0]}.NAME for each"
        )
    names = list(given.get("train", {}))
    for split, tensors in given.items():
        if split == "train" or sorted(tensors) == sorted(names):
            continue
        raise DataError(f"{origin}: x_{split} has the tensors {_some(tensors)}, x_train {_some(names)}; give the same")
    if unknown := sorted(set(parts) - {f"x_{split}" for split in given}):
        raise DataError(f"{origin}: {unknown[0]} holds tensors by name; only x_train, x_validation and x_test do")
    if len(names) < 2:
        raise DataError(f"{origin}: x_train has the tensor {_some(names)} alone; give one array as x_train itself")
    arrays = {
        split: {name: _array(f"x_{split}.{name}", given[split][name], origin) for name in names} for split in given
    }
    described = tuple(_described(name, [each[name] for each in arrays.values()], origin) for name in names)
    for split, tensors in arrays.items():
        _same_length(f"x_{split}", tensors, origin)
        plain[f"x_{split}"] = join(list(tensors.values()))
    return plain, described


def _apart(found: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """What is one array, and what is several, by name."""
    plain: dict[str, Any] = {}
    parts: dict[str, dict[str, Any]] = {}
    for name, value in found.items():
        head, dot, tail = str(name).partition(".")
        if isinstance(value, Mapping):
            parts.setdefault(name, {}).update({str(key): each for key, each in value.items()})
        elif dot:
            parts.setdefault(head, {})[tail] = value
        else:
            plain[name] = value
    return plain, parts


def _array(name: str, value: Any, origin: str) -> np.ndarray:
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise DataError(f"{origin}: {name} is not an array ({error})") from None
    if array.dtype.kind not in "fiu" or array.ndim < 2 or 0 in array.shape:
        shape = f"{array.dtype} of shape {array.shape}"
        fix = "give (n, 1)" if array.ndim == 1 and array.dtype.kind in "fiu" else "give floats or whole numbers (n, …)"
        raise DataError(f"{origin}: {name} is {shape}; {fix}")
    if not name.isprintable() or name.endswith("."):
        raise DataError(f"{origin}: {name!a} is no name of a tensor; use characters that can be seen")
    return _finite(name, array, origin) if array.dtype.kind == "f" else array


def _finite(name: str, array: np.ndarray, origin: str) -> np.ndarray:
    """As float32, in which a number that is too large is an infinity."""
    with np.errstate(over="ignore"):
        array = array.astype(np.float32, copy=False)
    if not np.isfinite(array).all():
        sample, *place = (int(index) for index in np.argwhere(~np.isfinite(array))[0])
        where = ", ".join(map(str, place))
        raise DataError(
            f"{origin}: {name}: sample {sample}, place {where} is {array[(sample, *place)]}; "
            "NaN and infinity (in float32) are not samples: repair or remove them"
        )
    return array


def _same_length(name: str, tensors: Mapping[str, np.ndarray], origin: str) -> None:
    counts = {tensor: len(array) for tensor, array in tensors.items()}
    if len(set(counts.values())) > 1:
        shown = ", ".join(f"{tensor} {count}" for tensor, count in counts.items())
        raise DataError(f"{origin}: the tensors of {name} have different numbers of samples: {shown}")


def _described(name: str, arrays: list[np.ndarray], origin: str) -> Tensor:
    """What a device takes of this name, by all samples."""
    shapes, kinds = {array.shape[1:] for array in arrays}, {array.dtype.kind == "f" for array in arrays}
    if len(shapes) > 1 or len(kinds) > 1:
        shown = ", ".join(f"{array.dtype}{list(array.shape[1:])}" for array in arrays)
        raise DataError(f"{origin}: tensor {name} differs between splits: {shown}; give all the same shape and type")
    shape = [int(side) for side in arrays[0].shape[1:]]
    if True in kinds:
        limits = None if len(shape) == WINDOW_AXES else usual_range(arrays)
        return {"name": name, "shape": shape, "dtype": "float32", "range": limits}
    dtypes = {array.dtype.name for array in arrays}
    if len(dtypes) == 1 and dtypes <= set(BYTES):
        ends = np.iinfo(dtypes.pop())
        return {"name": name, "shape": shape, "dtype": ends.dtype.name, "range": [int(ends.min), int(ends.max)]}
    low, high = min(int(array.min()) for array in arrays), max(int(array.max()) for array in arrays)
    if low < -LARGEST or high > LARGEST:
        raise DataError(
            f"{origin}: tensor {name} holds whole numbers from {low} to {high}; at most {LARGEST} is exact in float32, "
            "so count from another start, or give floats"
        )
    return {"name": name, "shape": shape, "dtype": "int32", "range": [low, high]}


def _some(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"
