"""From arrays under documented names to pools; shared by the sources `npz` and `python`.

Names: x_train, y_train; optional x_validation, y_validation, x_test, y_test, and classes (names, one per label).
x is uint8 (n, height, width[, 1 or 3]) for images, floating point (n, features) for vectors or (n, time, channels) for
windows. y is integer (n,) for classes, (n, labels) of 0 and 1 for several labels at once, floating point (n,) or
(n, values) for a regression, and 0 (normal) or 1 for an anomaly. Floats become float32; a missing channel axis is
added; without `classes` the names are those that the task's file gives them: of classes "0", "1", …. Classes that are
two integers of any kind, or some below 0, are named by their numbers: "-1", "0". `groups_train`, integer (n,), numbers
what was recorded together: a recording is never divided. `labels_by_model` counts labels of the train split that no
person gave: `edgekit field pack` writes it, and a run says so. For a network of several inputs x holds several arrays,
by their names.

Samples of several tensors, out of arrays by name, are joined as the runner joins them (`runner/input_vector.py`).

The tensor `picture` of the train split is `x_train.picture`, or `picture` in a dict under `x_train`. An array is
(n, …): floats, which become float32, or whole numbers, which stay whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from edgekit.core import tasks
from edgekit.core.config import suggest
from edgekit.core.errors import DataError
from edgekit.data.types import Kind, Pools, Split, usual_range
from edgekit.runner import input_path
from edgekit.runner.input_vector import LARGEST_EXACT_INTEGER, join

Tensor = dict[str, Any]
"""One of `RawSpec.tensors`."""
BYTES = ("uint8", "int8")
WINDOW_AXES = 2
"""Of (time, channels): a sensor may later show more than it did, so that windows have no range (`Data.raw_range`)."""


def join_tensors(
    found: Mapping[str, Any], splits: Iterable[str], origin: str
) -> tuple[dict[str, Any], tuple[Tensor, ...]]:
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
        split: {name: _tensor_array(f"x_{split}.{name}", given[split][name], origin) for name in names}
        for split in given
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


def _tensor_array(name: str, value: Any, origin: str) -> np.ndarray:
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
    if low < -LARGEST_EXACT_INTEGER or high > LARGEST_EXACT_INTEGER:
        raise DataError(
            f"{origin}: tensor {name} holds whole numbers from {low} to {high}; at most {LARGEST_EXACT_INTEGER} is "
            "exact in float32, so count from another start, or give floats"
        )
    return {"name": name, "shape": shape, "dtype": "int32", "range": [low, high]}


def _some(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"


_SPLITS = ("train", "validation", "test")
ARRAY_NAMES = (*(f"{axis}_{split}" for split in _SPLITS for axis in "xy"), "groups_train", "classes", "labels_by_model")
TENSOR_PREFIXES = tuple(f"x_{split}." for split in _SPLITS)
"""How the names of arrays begin that are one of several tensors."""
SINGLE_ARRAY_TASKS = ("anomaly", "detection", "segmentation")
"""Tasks that give a sample back, or places in it."""
MAX_NUMBERED_CLASSES = 1000
"""Classes that are named by their numbers: more, and they are measured values."""
_UNGROUPED = (
    "it is not known which windows come from one recording, so one recording may be in "
    "train and in test, and accuracies may be too high; name the recordings in groups_train, or give all splits"
)


def pools_from_arrays(found: Mapping[str, Any], origin: str, task: str = "classification") -> Pools:
    """Pools from named arrays; DataError, beginning with `origin`, for a name or an array that does not fit."""
    found, parts = join_tensors(found, _SPLITS, origin)
    if parts and task in SINGLE_ARRAY_TASKS:
        raise DataError(f"{origin}: samples of several tensors, and task {task} takes one array each; join them in one")
    for name in found:
        if name not in ARRAY_NAMES:
            raise DataError(f"{origin}: unknown name {name!r}, {suggest(str(name), ARRAY_NAMES)}")
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
    pictures = input_path.picture_steps((*shape, 1)) if bare else []
    return ({"step": "read_array", "dtypes": dtypes, "shape": list(shape)}, *pictures)


def _values(splits: Iterable[Split]) -> np.ndarray | None:
    """The labels that there are, ascending, where they are two integers or some are below 0; None for 0, 1, … ."""
    labels = [split.y for split in splits]
    if any(y.ndim != 1 or y.dtype.kind not in "iu" for y in labels):
        return None
    values = np.unique(np.concatenate([y.astype(np.int64) for y in labels]))
    if not len(values) or (values[0] >= 0 and (len(values) != 2 or values.tolist() == [0, 1])):
        return None
    if len(values) > MAX_NUMBERED_CLASSES:
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
        default: tuple[str, ...] = tasks.load_task(task).default_names(labels)
    except DataError as error:
        raise DataError(f"{origin}: {error}") from None
    return default
