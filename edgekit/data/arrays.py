"""From arrays under documented names to pools; shared by the sources `npz` and `python`.

Names: x_train, y_train; optional x_validation, y_validation, x_test, y_test, and classes (names, one per label).
x is uint8 (n, height, width[, 1 or 3]) for images, floating point (n, features) for vectors or (n, time, channels) for
windows. y is integer (n,) for classes, (n, labels) of 0 and 1 for several labels at once, floating point (n,) or
(n, values) for a regression, and 0 (normal) or 1 for an anomaly. Floats become float32; a missing channel axis is
added; without `classes` the names are those that the task's file gives them: of classes "0", "1", …. Classes that are
two integers of any kind, or some below 0, are named by their numbers: "-1", "0". `groups_train`, integer (n,), numbers
what was recorded together: a recording is never divided. `labels_by_model` counts labels of the train split that no
person gave: `edgekit field pack` writes it, and a run says so. For a network of several inputs x holds several arrays,
by their names (`edgekit/data/tensors.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from edgekit.core import tasks
from edgekit.core.config import suggest
from edgekit.core.errors import DataError
from edgekit.data import tensors
from edgekit.data.types import Kind, Pools, Split
from edgekit.runner import input_path

_SPLITS = ("train", "validation", "test")
NAMES = (*(f"{axis}_{split}" for split in _SPLITS for axis in "xy"), "groups_train", "classes", "labels_by_model")
TENSORS = tuple(f"x_{split}." for split in _SPLITS)
"""How the names of arrays begin that are one of several tensors."""
ONE_ARRAY = ("anomaly", "detection", "segmentation")
"""Tasks that give a sample back, or places in it."""
MOST_NUMBERED = 1000
"""Classes that are named by their numbers: more, and they are measured values."""
_UNGROUPED = (
    "it is not known which windows come from one recording, so one recording may be in "
    "train and in test, and accuracies may be too high; name the recordings in groups_train, or give all splits"
)


def pools(found: Mapping[str, Any], origin: str, task: str = "classification") -> Pools:
    """Pools from named arrays; DataError, beginning with `origin`, for a name or an array that does not fit."""
    found, parts = tensors.joined(found, _SPLITS, origin)
    if parts and task in ONE_ARRAY:
        raise DataError(f"{origin}: samples of several tensors, and task {task} takes one array each; join them in one")
    for name in found:
        if name not in NAMES:
            raise DataError(f"{origin}: unknown name {name!r}, {suggest(str(name), NAMES)}")
    splits = {name: split for name in _SPLITS if (split := _split(found, name, origin)) is not None}
    kind: Kind = "tensors" if parts else _kind(splits["train"].x)
    steps = _input_path(splits, kind)
    if kind == "image":
        splits = {name: replace(split, x=_with_channels(split.x)) for name, split in splits.items()}
    of_classes = task in ("classification", "embedding")
    if of_classes and found.get("classes") is None and (values := _values(splits.values())) is not None:
        splits = {name: replace(split, y=np.searchsorted(values, split.y)) for name, split in splits.items()}
        found = {**found, "classes": values.astype(str)}
    notes = _by_model(found) + (
        (_UNGROUPED,) if kind == "window" and len(splits) < 3 and splits["train"].groups is None else ()
    )
    given = (splits["train"], splits.get("validation"), splits.get("test"))
    classes = _classes(found, splits["train"].y, origin, task)
    return Pools(*given, classes, kind, notes, input_path=steps, tensors=parts or None)


def _by_model(found: Mapping[str, Any]) -> tuple[str, ...]:
    count = found.get("labels_by_model")
    if count is None:
        return ()
    return (
        f"{int(np.max(count)):,} labels of x_train are a model's own answers, which no person has checked; "
        "correct the table that `edgekit field pack` wrote, and pack again with --labels",
    )


def _input_path(splits: dict[str, Split], kind: Kind) -> tuple[dict[str, Any], ...] | None:
    """The form that the arrays have, where a sample of theirs has another: the device takes a file of that form too."""
    if kind == "tensors":
        return ({"step": "read_tensors"},)
    shape = splits["train"].x.shape[1:]
    dtypes = sorted({split.x.dtype.name for split in splits.values()})
    bare = kind == "image" and len(shape) == 2
    native = all(split.x.dtype.isnative for split in splits.values())
    if not bare and (kind == "image" or (dtypes == ["float32"] and native)):
        return None
    if not all(dtype in input_path.ARRAY_DTYPES for dtype in dtypes):
        return None
    pictures = input_path.pictures((*shape, 1)) if bare else []
    return ({"step": "read_array", "dtypes": dtypes, "shape": list(shape)}, *pictures)


def _values(splits: Iterable[Split]) -> np.ndarray | None:
    """The labels that there are, ascending, where they are two integers or some are below 0; None for 0, 1, … ."""
    labels = [split.y for split in splits]
    if any(y.ndim != 1 or y.dtype.kind not in "iu" for y in labels):
        return None
    values = np.unique(np.concatenate([y.astype(np.int64) for y in labels]))
    if not len(values) or (values[0] >= 0 and (len(values) != 2 or values.tolist() == [0, 1])):
        return None
    if len(values) > MOST_NUMBERED:
        raise DataError(
            f"labels from {values[0]} to {values[-1]}, {len(values)} of them; number the classes 0, 1, …, or give "
            "floating-point labels for a regression"
        )
    return values


def _kind(x: np.ndarray) -> Kind:
    if x.dtype == np.uint8:
        return "image"
    return "window" if x.ndim == 3 and np.issubdtype(x.dtype, np.floating) else "vector"


def _split(found: Mapping[str, Any], name: str, origin: str) -> Split | None:
    wanted = (f"x_{name}", f"y_{name}")
    missing = [key for key in wanted if found.get(key) is None]
    if len(missing) == 2 and name != "train":
        return None
    if missing:
        has = ", ".join(sorted(found)) or "nothing"
        raise DataError(f"{origin}: {' and '.join(missing)} missing; it holds {has}")
    x, y = (_array(found[key], key, origin) for key in wanted)
    groups = found.get(f"groups_{name}")
    return Split(x, y, None if groups is None else _array(groups, f"groups_{name}", origin))


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
