"""Create pools from arrays with fixed names, for the sources `npz` and `python`.

The arrays x_train and y_train are needed. The following are optional:

- x_validation, y_validation, x_test and y_test;
- classes: the names of the labels. Without it the task's module chooses the names "0", "1", … If there are exactly two
  label values, or some are negative, the values themselves are the names, such as "-1" and "0";
- groups_train, integer (n,): the number of the recording that each sample comes from. A recording is never divided
  between splits;
- labels_by_model: the number of labels in the train split that a model gave and no person has checked. It is written by
  `edgekit field pack`, and a run reports it.

x is uint8 (n, height, width) or (n, height, width, 1 or 3) for images, floating point (n, features) for vectors, and
floating point (n, time, channels) for windows. Floats become float32, and a missing channel axis is added.

y is integer (n,) for classes, integer (n, labels) of 0 and 1 for several labels at once, floating point (n,) or (n,
values) for a regression, and integer (n,) of 0 (normal) and 1 (anomaly) for anomaly detection.

For a network with several inputs, x consists of several named arrays (tensors), which are joined as the runner joins
them (`runner/input_vector.py`). For example, the tensor `picture` of the train split is an array with the name
`x_train.picture`, or the entry `picture` of a dict under `x_train`. Each array is (n, …) and holds floats, which become
float32, or integers, which stay integers.
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
"""An entry of `RawSpec.tensors`."""
BYTES = ("uint8", "int8")
WINDOW_AXES = 2
"""Number of axes of a window (time, channels).

Windows have no range (`Data.raw_range`), because a sensor may later exceed it.
"""


def join_tensors(
    arrays_by_name: Mapping[str, Any], splits: Iterable[str], origin: str
) -> tuple[dict[str, Any], tuple[Tensor, ...]]:
    """Join the tensors of each x to one array (n, width) float32. Return all arrays and the tensors' descriptions.

    The descriptions are empty if each x is a single array.

    Raises
    ------
    DataError
        The tensors do not fit each other. The message begins with `origin`.
    """
    plain, tensors_by_name = _separate_tensors(arrays_by_name)
    if not tensors_by_name:
        return plain, ()
    by_split = {split: tensors_by_name[f"x_{split}"] for split in splits if f"x_{split}" in tensors_by_name}
    if mixed := [f"x_{split}" for split in splits if f"x_{split}" in plain]:
        raise DataError(
            f"{origin}: {mixed[0]} is one array, but others consist of named tensors; give {mixed[0]}.NAME for each"
        )
    names = list(by_split.get("train", {}))
    for split, tensors in by_split.items():
        if split == "train" or sorted(tensors) == sorted(names):
            continue
        raise DataError(
            f"{origin}: x_{split} has the tensors {_some(tensors)}, but x_train has {_some(names)}; give "
            f"both the same tensors"
        )
    if unknown := sorted(set(tensors_by_name) - {f"x_{split}" for split in by_split}):
        raise DataError(f"{origin}: {unknown[0]} consists of named tensors; only x_train, x_validation and x_test can")
    if len(names) < 2:
        raise DataError(f"{origin}: x_train has only the tensor {_some(names)}; give that array as x_train itself")
    arrays = {
        split: {name: _tensor_array(f"x_{split}.{name}", by_split[split][name], origin) for name in names}
        for split in by_split
    }
    descriptions = tuple(_describe_tensor(name, [each[name] for each in arrays.values()], origin) for name in names)
    for split, tensors in arrays.items():
        _check_lengths(f"x_{split}", tensors, origin)
        plain[f"x_{split}"] = join(list(tensors.values()))
    return plain, descriptions


def _separate_tensors(arrays_by_name: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Separate plain arrays from those that consist of several named tensors."""
    plain: dict[str, Any] = {}
    tensors_by_name: dict[str, dict[str, Any]] = {}
    for name, value in arrays_by_name.items():
        head, dot, tail = str(name).partition(".")
        if isinstance(value, Mapping):
            tensors_by_name.setdefault(name, {}).update({str(key): array for key, array in value.items()})
        elif dot:
            tensors_by_name.setdefault(head, {})[tail] = value
        else:
            plain[name] = value
    return plain, tensors_by_name


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
        raise DataError(f"{origin}: {name!a} is not a valid name of a tensor; use visible characters")
    return _finite(name, array, origin) if array.dtype.kind == "f" else array


def _finite(name: str, array: np.ndarray, origin: str) -> np.ndarray:
    """Return the array as float32. Raises DataError for NaN, infinity, and numbers that are too large for float32."""
    with np.errstate(over="ignore"):
        array = array.astype(np.float32, copy=False)
    if not np.isfinite(array).all():
        sample, *place = (int(index) for index in np.argwhere(~np.isfinite(array))[0])
        where = ", ".join(map(str, place))
        raise DataError(
            f"{origin}: {name}: sample {sample}, place {where} is {array[(sample, *place)]}; "
            "values must be finite in float32: repair this one, or remove the sample"
        )
    return array


def _check_lengths(name: str, tensors: Mapping[str, np.ndarray], origin: str) -> None:
    counts = {tensor: len(array) for tensor, array in tensors.items()}
    if len(set(counts.values())) > 1:
        shown = ", ".join(f"{tensor} {count}" for tensor, count in counts.items())
        raise DataError(f"{origin}: the tensors of {name} have different numbers of samples: {shown}")


def _describe_tensor(name: str, arrays: list[np.ndarray], origin: str) -> Tensor:
    """Describe one tensor, considering the samples of all splits."""
    shapes, are_float = {array.shape[1:] for array in arrays}, {array.dtype.kind == "f" for array in arrays}
    if len(shapes) > 1 or len(are_float) > 1:
        listed = ", ".join(f"{array.dtype}{list(array.shape[1:])}" for array in arrays)
        raise DataError(f"{origin}: tensor {name} differs between splits: {listed}; give all the same shape and type")
    shape = [int(side) for side in arrays[0].shape[1:]]
    if True in are_float:
        limits = None if len(shape) == WINDOW_AXES else usual_range(arrays)
        return {"name": name, "shape": shape, "dtype": "float32", "range": limits}
    dtypes = {array.dtype.name for array in arrays}
    if len(dtypes) == 1 and dtypes <= set(BYTES):
        limits_of_type = np.iinfo(dtypes.pop())
        return {
            "name": name,
            "shape": shape,
            "dtype": limits_of_type.dtype.name,
            "range": [int(limits_of_type.min), int(limits_of_type.max)],
        }
    low, high = min(int(array.min()) for array in arrays), max(int(array.max()) for array in arrays)
    if low < -LARGEST_EXACT_INTEGER or high > LARGEST_EXACT_INTEGER:
        raise DataError(
            f"{origin}: tensor {name} holds whole numbers from {low} to {high}; float32 is exact only up to "
            f"{LARGEST_EXACT_INTEGER}, so use smaller numbers, or give floats"
        )
    return {"name": name, "shape": shape, "dtype": "int32", "range": [low, high]}


def _some(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"


_SPLITS = ("train", "validation", "test")
ARRAY_NAMES = (*(f"{axis}_{split}" for split in _SPLITS for axis in "xy"), "groups_train", "classes", "labels_by_model")
TENSOR_PREFIXES = tuple(f"x_{split}." for split in _SPLITS)
"""Prefixes of the names of arrays that are one of several tensors of a sample."""
SINGLE_ARRAY_TASKS = ("anomaly", *tasks.BOX_TASKS, "segmentation")
"""Tasks that need a single array for each sample, because their answers reconstruct it or refer to positions in it."""
MAX_NUMBERED_CLASSES = 1000
"""Largest number of label values that are taken as classes. If there are more, they are probably measured values."""
_UNGROUPED = (
    "it is not known which windows come from the same recording, so one recording may be in "
    "train and in test, and accuracies may be too high; number the recordings in groups_train, or give all splits"
)


def pools_from_arrays(arrays_by_name: Mapping[str, Any], origin: str, task: str = "classification") -> Pools:
    """Return pools from named arrays.

    Raises
    ------
    DataError
        A name or an array is not valid. The message begins with `origin`.
    """
    arrays_by_name, tensors = join_tensors(arrays_by_name, _SPLITS, origin)
    if tensors and task in SINGLE_ARRAY_TASKS:
        raise DataError(f"{origin}: samples have several tensors, but task {task} needs one array each; join them")
    for name in arrays_by_name:
        if name not in ARRAY_NAMES:
            raise DataError(f"{origin}: unknown name {name!r}, {suggest(str(name), ARRAY_NAMES)}")
    splits = {name: split for name in _SPLITS if (split := _split(arrays_by_name, name, origin)) is not None}
    kind: Kind = "tensors" if tensors else _kind(splits["train"].x)
    steps = _input_path(splits, kind)
    if kind == "image":
        splits = {name: replace(split, x=_with_channels(split.x)) for name, split in splits.items()}
    has_classes = task in ("classification", "embedding")
    if (
        has_classes
        and arrays_by_name.get("classes") is None
        and (values := _numbered_classes(splits.values())) is not None
    ):
        splits = {name: replace(split, y=np.searchsorted(values, split.y)) for name, split in splits.items()}
        arrays_by_name = {**arrays_by_name, "classes": values.astype(str)}
    notes = _model_label_notes(arrays_by_name) + (
        (_UNGROUPED,) if kind == "window" and len(splits) < 3 and splits["train"].groups is None else ()
    )
    three_splits = (splits["train"], splits.get("validation"), splits.get("test"))
    classes = _classes(arrays_by_name, splits["train"].y, origin, task)
    return Pools(*three_splits, classes, kind, notes, input_path=steps, tensors=tensors or None)


def _model_label_notes(arrays_by_name: Mapping[str, Any]) -> tuple[str, ...]:
    count = arrays_by_name.get("labels_by_model")
    if count is None:
        return ()
    return (
        f"{int(np.max(count)):,} labels of x_train are a model's own answers, which no person has checked; "
        "correct the table that `edgekit field pack` wrote, and pack again with --labels",
    )


def _input_path(splits: dict[str, Split], kind: Kind) -> tuple[dict[str, Any], ...] | None:
    """Return the steps by which a device turns an array of the user's form into a sample.

    The result is None if such an array already is a sample, or if the runner does not support its dtype.
    """
    if kind == "tensors":
        return ({"step": "read_tensors"},)
    shape = splits["train"].x.shape[1:]
    dtypes = sorted({split.x.dtype.name for split in splits.values()})
    has_no_channels = kind == "image" and len(shape) == 2
    is_native = all(split.x.dtype.isnative for split in splits.values())
    if not has_no_channels and (kind == "image" or (dtypes == ["float32"] and is_native)):
        return None
    if not all(dtype in input_path.ARRAY_DTYPES for dtype in dtypes):
        return None
    pictures = input_path.picture_steps((*shape, 1)) if has_no_channels else []
    return ({"step": "read_array", "dtypes": dtypes, "shape": list(shape)}, *pictures)


def _numbered_classes(splits: Iterable[Split]) -> np.ndarray | None:
    """Return the label values in ascending order if there are exactly two or some are negative; None for 0, 1, …"""
    labels = [split.y for split in splits]
    if any(y.ndim != 1 or y.dtype.kind not in "iu" for y in labels):
        return None
    values = np.unique(np.concatenate([y.astype(np.int64) for y in labels]))
    if not len(values) or (values[0] >= 0 and (len(values) != 2 or values.tolist() == [0, 1])):
        return None
    if len(values) > MAX_NUMBERED_CLASSES:
        raise DataError(
            f"labels from {values[0]} to {values[-1]}, {len(values)} values; number the classes 0, 1, …, or give "
            "floating-point labels for a regression"
        )
    return values


def _kind(x: np.ndarray) -> Kind:
    if x.dtype == np.uint8:
        return "image"
    return "window" if x.ndim == 3 and np.issubdtype(x.dtype, np.floating) else "vector"


def _split(arrays_by_name: Mapping[str, Any], name: str, origin: str) -> Split | None:
    required = (f"x_{name}", f"y_{name}")
    missing = [key for key in required if arrays_by_name.get(key) is None]
    if len(missing) == 2 and name != "train":
        return None
    if missing:
        listed = ", ".join(sorted(arrays_by_name)) or "nothing"
        raise DataError(f"{origin}: {' and '.join(missing)} missing; it holds {listed}")
    x, y = (_array(arrays_by_name[key], key, origin) for key in required)
    groups = arrays_by_name.get(f"groups_{name}")
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


def _classes(arrays_by_name: Mapping[str, Any], labels: np.ndarray, origin: str, task: str) -> tuple[str, ...]:
    if arrays_by_name.get("classes") is not None:
        names = _array(arrays_by_name["classes"], "classes", origin)
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
