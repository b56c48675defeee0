"""From arrays under documented names to pools; shared by the sources `npz` and `python`.

Names: x_train, y_train; optional x_validation, y_validation, x_test, y_test, and classes (names, one per label).
x is uint8 (n, height, width[, 1 or 3]) for images, floating point (n, features) for vectors. y is integer (n,) for
classes, (n, labels) of 0 and 1 for several labels at once, floating point (n,) or (n, values) for a regression, and 0
(normal) or 1 for an anomaly. Floats become float32; a missing channel axis is added; without `classes` the names are
those that the task's file gives them: of classes "0", "1", ….
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from edgekit import tasks
from edgekit.config import suggest
from edgekit.data.types import Kind, Pools, Split
from edgekit.errors import DataError

_SPLITS = ("train", "validation", "test")
NAMES = (*(f"{axis}_{split}" for split in _SPLITS for axis in "xy"), "classes")


def pools(found: Mapping[str, Any], origin: str, task: str = "classification") -> Pools:
    """Pools from named arrays; DataError, beginning with `origin`, for a name or an array that does not fit."""
    for name in found:
        if name not in NAMES:
            raise DataError(f"{origin}: unknown name {name!r}, {suggest(str(name), NAMES)}")
    splits = {name: split for name in _SPLITS if (split := _split(found, name, origin)) is not None}
    kind: Kind = "image" if splits["train"].x.dtype == np.uint8 else "vector"
    if kind == "image":
        splits = {name: Split(_with_channels(split.x), split.y) for name, split in splits.items()}
    names = _classes(found, splits["train"].y, origin, task)
    return Pools(splits["train"], splits.get("validation"), splits.get("test"), names, kind)


def _split(found: Mapping[str, Any], name: str, origin: str) -> Split | None:
    wanted = (f"x_{name}", f"y_{name}")
    missing = [key for key in wanted if found.get(key) is None]
    if len(missing) == 2 and name != "train":
        return None
    if missing:
        has = ", ".join(sorted(found)) or "nothing"
        raise DataError(f"{origin}: {' and '.join(missing)} missing; it holds {has}")
    x, y = (_array(found[key], key, origin) for key in wanted)
    return Split(x, y)


def _array(value: Any, name: str, origin: str) -> np.ndarray:
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise DataError(f"{origin}: {name} is not an array ({error})") from None
    if array.dtype.hasobject:
        raise DataError(f"{origin}: {name} holds Python objects, got dtype {array.dtype}; store plain numbers")
    return array


def _with_channels(x: np.ndarray) -> np.ndarray:
    return x[..., np.newaxis] if x.ndim == 3 else x


def _classes(found: Mapping[str, Any], labels: np.ndarray, origin: str, task: str) -> tuple[str, ...]:
    if found.get("classes") is not None:
        names = _array(found["classes"], "classes", origin)
        if names.ndim != 1 or names.dtype.kind not in "US":
            raise DataError(
                f"{origin}: classes is {names.dtype} of shape {names.shape}; it must be a list of names, as strings"
            )
        return tuple(str(name) for name in names.astype(str))
    try:
        default: tuple[str, ...] = tasks.named(task).names(labels)
    except DataError as error:
        raise DataError(f"{origin}: {error}") from None
    return default
