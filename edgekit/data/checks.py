"""Check samples before they are used. Every fault raises a DataError that says where it is and what to do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from edgekit.core import tasks
from edgekit.core.errors import ConfigError, DataError
from edgekit.core.tasks import Task
from edgekit.core.tasks.labels import quote_names
from edgekit.data import memory_map
from edgekit.data.types import Data, Keypoints, Kind, Pools, Split
from edgekit.runner.preprocess.steps import check as check_steps

NUMBERED_TASKS = ("classification", *tasks.BOX_TASKS)
"""Tasks whose labels identify classes by their index."""
_VECTORS = ("(n, features)", ("feature",), "convert with x.reshape(len(x), -1).astype('float32')")
_WINDOWS = (
    "(n, time, channels)",
    ("time", "channel"),
    "cut recordings into pieces of equal length, with the channels on the last axis",
)


def normalize_pools(pools: Pools, task: Task = "classification", classes: tuple[str, ...] | None = None) -> Pools:
    """Return the pools (the splits and their classes) with the labels in the task's normal form.

    Samples that are vectors or windows become float32.

    If `classes` are given, the labels are renumbered as indices of these classes, and it is not an
    error if a class has no samples.

    Raises
    ------
    DataError
        Samples or labels are not valid.
    """
    task_module = tasks.load_task(task)
    if classes is not None:
        pools = _with_classes(pools, task, classes)
    splits = {name: _split(name, split, pools.kind) for name, split in pools.splits().items()}
    _check_names(pools.classes)
    _check_printable("columns", pools.columns or ())
    shapes = {name: split.x.shape[1:] for name, split in splits.items()}
    if len(set(shapes.values())) > 1:
        listed = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise DataError(f"samples differ in shape between splits: {listed}; give all splits the same shape")
    splits = {
        name: replace(split, y=task_module.normalize_labels(name, split.y, pools.classes))
        for name, split in splits.items()
    }
    if task == "segmentation":
        _check_masks(splits)
    if task == "keypoints" and pools.keypoints is None:
        count = task_module.keypoint_count(splits["train"].y)
        pools = replace(pools, keypoints=Keypoints(tuple(map(str, range(count)))))
    if task == "anomaly":  # the splits are checked later, because anomalies may still be moved to validation and test
        return replace(pools.with_splits(splits), classes=task_module.NAMES)
    for name, split in splits.items():
        if classes is None:
            task_module.check_split(name, split.y, pools.classes)
    return pools.with_splits(splits)


def _with_classes(pools: Pools, task: Task, classes: tuple[str, ...]) -> Pools:
    """Return pools whose labels are indices into `classes`.

    Raises
    ------
    ConfigError
        The task has no numbered classes.
    DataError
        A class of the data is not among the given ones.
    """
    if task not in NUMBERED_TASKS:
        raise ConfigError(
            f"data.classes: only {' and '.join(NUMBERED_TASKS)} have numbered classes, but task is {task}"
        )
    if missing := [name for name in pools.classes if name not in classes]:
        raise DataError(
            f"data.classes: got {quote_names(classes)}, but the data also have {quote_names(missing)}; name all "
            "classes, in the order of the model's outputs"
        )
    numbers = np.array([classes.index(name) for name in pools.classes])

    def renumbered(name: str, split: Split) -> Split:
        y = tasks.load_task(task).normalize_labels(name, split.y, pools.classes).copy()
        kinds = y[:, 1:, 0] if task in tasks.BOX_TASKS else y
        chosen = kinds >= 0
        kinds[chosen] = numbers[kinds[chosen].astype(np.int64)]
        return replace(split, y=y)

    return replace(
        pools.with_splits({name: renumbered(name, each) for name, each in pools.splits().items()}), classes=classes
    )


def _check_masks(splits: dict[str, Split]) -> None:
    """Raise DataError if a mask has another size than its picture."""
    for name, split in splits.items():
        if split.x.ndim != 4 or split.y.shape[1:] != split.x.shape[1:3]:
            raise DataError(
                f"{name}: masks of shape {split.y.shape} for samples of shape {split.x.shape}; give each picture "
                "(height, width, channels) a mask (height, width)"
            )


def _split(name: str, split: Split, kind: Kind) -> Split:
    x, y = split.x, split.y
    if x.ndim < 2 or y.ndim < 1 or len(x) != len(y):
        raise DataError(
            f"{name}: samples have shape {x.shape} and labels {y.shape}; give an array "
            "of n samples, of shape (n, …) with at least two axes, and a second array of n labels, one for each sample"
        )
    if not len(x):
        raise DataError(f"{name}: no samples; leave the split out or add samples to it")
    return replace(split, x=_check_samples(name, x, kind), groups=_normalize_groups(name, split))


def _check_samples(name: str, x: np.ndarray, kind: Kind) -> np.ndarray:
    if kind == "image":
        return _check_images(name, x)
    return _check_token_ids(name, x) if kind == "text" else _normalize_floats(name, x, kind)


def _check_images(name: str, x: np.ndarray) -> np.ndarray:
    if x.dtype != np.uint8 or x.ndim != 4 or x.shape[3] not in (1, 3) or 0 in x.shape:
        raise DataError(
            f"{name}: images are {x.dtype} of shape {x.shape}; they must be uint8 (n, height, width, 1 or 3), "
            "as a camera gives them: keep the pixel values in the range 0 to 255, and scale them in `preprocess`"
        )
    return x


def _check_token_ids(name: str, x: np.ndarray) -> np.ndarray:
    if x.dtype != np.int32 or x.ndim != 2 or 0 in x.shape:
        raise DataError(
            f"{name}: texts are {x.dtype} of shape {x.shape}; they must be token ids, int32 of shape (n, tokens)"
        )
    if x.min() < 0:
        raise DataError(f"{name}: a token id is {x.min()}; ids start at 0")
    return x


def _normalize_floats(name: str, x: np.ndarray, kind: Kind) -> np.ndarray:
    expected, axes, fix = _WINDOWS if kind == "window" else _VECTORS
    if x.ndim != 1 + len(axes) or not np.issubdtype(x.dtype, np.floating) or 0 in x.shape:
        plural = "windows" if kind == "window" else "vectors"
        raise DataError(
            f"{name}: {plural} are {x.dtype} of shape {x.shape}; they must be floating-point {expected}; {fix}"
        )
    # A float64 that is too large for float32 becomes infinite here, so it is reported as infinite below.
    with np.errstate(over="ignore"):
        x = x.astype(np.float32, copy=False)
    for part in memory_map.chunks(x):
        finite = np.isfinite(x[part])
        if not finite.all():
            first, *position = (int(index) for index in np.unravel_index(np.argmin(finite), finite.shape))
            where = ", ".join(f"{axis} {index}" for axis, index in zip(axes, position, strict=True))
            raise DataError(
                f"{name}: sample {part.start + first}, {where} is {x[part.start + first][tuple(position)]}; "
                "values must be finite in float32: repair this one, or remove the sample"
            )
    return x


def _normalize_groups(name: str, split: Split) -> np.ndarray | None:
    groups = split.groups
    if groups is None:
        return None
    if groups.shape != (len(split.x),) or not np.issubdtype(groups.dtype, np.integer):
        raise DataError(
            f"{name}: groups are {groups.dtype} of shape {groups.shape} for {len(split.x)} samples; they must be "
            "integers, one per sample: the number of the recording that the sample was cut from"
        )
    return groups.astype(np.int64)


def _check_names(names: tuple[str, ...]) -> None:
    if len(set(names)) != len(names) or not all(names):
        raise DataError(f"classes: got {quote_names(names)}; names must be unique and not empty")
    _check_printable("classes", names)


def _check_printable(what: str, names: tuple[str, ...]) -> None:
    """Raise DataError for a name with a control character or an unusual space, which a device could not show."""
    for name in names:
        if not name.isprintable():
            raise DataError(f"{what}: got {name!a}; rename it, with visible characters and plain spaces")


def preprocessed_shape(data: Data, preprocess: list[dict[str, Any]]) -> tuple[int, ...]:
    """Return the shape of a sample after preprocessing.

    Raises
    ------
    InputError
        The steps do not fit the samples.
    ConfigError
        The samples have several tensors, which cannot be preprocessed.
    """
    if data.tensors and preprocess:
        raise ConfigError(
            f"preprocess: got {preprocess}, but samples of several tensors cannot be preprocessed, because each step "
            "would change all of them; write [], and let the network scale its inputs"
        )
    return check_steps(preprocess, data.raw_shape, data.raw_dtype)
