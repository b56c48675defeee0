"""What samples must be before anything is made of them; every fault is a DataError that says where and what to do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from edgekit.core import tasks
from edgekit.core.errors import ConfigError, DataError
from edgekit.core.tasks import Task
from edgekit.core.tasks.labels import quote_names
from edgekit.data import memory_map
from edgekit.data.types import Data, Kind, Pools, Split
from edgekit.runner.preprocess.steps import check as check_steps

_VECTORS = ("(n, features)", ("feature",), "convert with x.reshape(len(x), -1).astype('float32')")
_WINDOWS = ("(n, time, channels)", ("time", "channel"), "cut recordings into pieces of one length, channels last")


def normalize_pools(pools: Pools, task: Task = "classification") -> Pools:
    """Labels as the task has them, vectors and windows as float32; refuse what is not raw samples with a label each."""
    kind = tasks.load_task(task)
    checked = {name: _split(name, split, pools.kind) for name, split in pools.splits().items()}
    _names(pools.classes)
    _printable("columns", pools.columns or ())
    shapes = {name: split.x.shape[1:] for name, split in checked.items()}
    if len(set(shapes.values())) > 1:
        shown = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise DataError(f"samples differ in shape between splits: {shown}; give all splits the same shape")
    checked = {
        name: replace(split, y=kind.normalize_labels(name, split.y, pools.classes)) for name, split in checked.items()
    }
    if task == "segmentation":
        _masks(checked)
    if task == "anomaly":  # how anomalies come into each split is decided where the samples are divided
        return replace(pools.with_splits(checked), classes=kind.NAMES)
    for name, split in checked.items():
        kind.check_split(name, split.y, pools.classes)
    return pools.with_splits(checked)


def _masks(splits: dict[str, Split]) -> None:
    """DataError where a mask is of another size than its picture."""
    for name, split in splits.items():
        if split.x.ndim != 4 or split.y.shape[1:] != split.x.shape[1:3]:
            raise DataError(
                f"{name}: masks of shape {split.y.shape} for samples of shape {split.x.shape}; give each picture "
                "(height, width, channels) a mask (height, width)"
            )


def _split(name: str, split: Split, kind: Kind) -> Split:
    x, y = split.x, split.y
    if x.ndim < 2 or y.ndim < 1 or len(x) != len(y):
        raise DataError(f"{name}: {x.shape} samples and {y.shape} labels; the first axis of both must be as long")
    if not len(x):
        raise DataError(f"{name}: no samples at all; leave the split out or fill it")
    return replace(split, x=_samples(name, x, kind), groups=_groups(name, split))


def _samples(name: str, x: np.ndarray, kind: Kind) -> np.ndarray:
    if kind == "image":
        return _image(name, x)
    return _ids(name, x) if kind == "text" else _floats(name, x, kind)


def _image(name: str, x: np.ndarray) -> np.ndarray:
    if x.dtype != np.uint8 or x.ndim != 4 or x.shape[3] not in (1, 3) or 0 in x.shape:
        raise DataError(
            f"{name}: images are {x.dtype} of shape {x.shape}; they must be uint8 (n, height, width, 1 or 3), "
            "as a camera gives them: scaling belongs in `preprocess`"
        )
    return x


def _ids(name: str, x: np.ndarray) -> np.ndarray:
    if x.dtype != np.int32 or x.ndim != 2 or 0 in x.shape:
        raise DataError(f"{name}: texts are {x.dtype} of shape {x.shape}; they must be int32 (n, tokens), token ids")
    if x.min() < 0:
        raise DataError(f"{name}: a token id is {x.min()}; ids count from 0")
    return x


def _floats(name: str, x: np.ndarray, kind: Kind) -> np.ndarray:
    wanted, axes, fix = _WINDOWS if kind == "window" else _VECTORS
    if x.ndim != 1 + len(axes) or not np.issubdtype(x.dtype, np.floating) or 0 in x.shape:
        called = "windows" if kind == "window" else "vectors"
        raise DataError(
            f"{name}: {called} are {x.dtype} of shape {x.shape}; they must be floating-point {wanted}; {fix}"
        )
    # A float64 beyond float32's range turns into an infinity here, and is reported as one below.
    with np.errstate(over="ignore"):
        x = x.astype(np.float32, copy=False)
    for part in memory_map.chunks(x):
        finite = np.isfinite(x[part])
        if not finite.all():
            first, *place = (int(index) for index in np.unravel_index(np.argmin(finite), finite.shape))
            where = ", ".join(f"{axis} {index}" for axis, index in zip(axes, place, strict=True))
            raise DataError(
                f"{name}: sample {part.start + first}, {where} is {x[part.start + first][tuple(place)]}; "
                "NaN and infinity (in float32) are not samples: repair or remove them"
            )
    return x


def _groups(name: str, split: Split) -> np.ndarray | None:
    groups = split.groups
    if groups is None:
        return None
    if groups.shape != (len(split.x),) or not np.issubdtype(groups.dtype, np.integer):
        raise DataError(
            f"{name}: groups are {groups.dtype} of shape {groups.shape} for {len(split.x)} samples; they must be "
            "integers, one per sample: the number of the recording that it was cut from"
        )
    return groups.astype(np.int64)


def _names(names: tuple[str, ...]) -> None:
    if len(set(names)) != len(names) or not all(names):
        raise DataError(f"classes: got {quote_names(names)}; names must be unique and not empty")
    _printable("classes", names)


def _printable(what: str, names: tuple[str, ...]) -> None:
    """DataError for a name that a device could not show: with a control character, or a space of another kind."""
    for name in names:
        if not name.isprintable():
            raise DataError(f"{what}: got {name!a}; rename it, with characters that can be seen, and plain spaces")


def preprocessed_shape(data: Data, preprocess: list[dict[str, Any]]) -> tuple[int, ...]:
    """What the steps make of a sample's shape; InputError where they do not fit, ConfigError for several tensors."""
    if data.tensors and preprocess:
        raise ConfigError(
            f"preprocess: got {preprocess}, and samples of several tensors take none, for each would change "
            "all; write [], and let the network scale its inputs"
        )
    return check_steps(preprocess, data.raw_shape, data.raw_dtype)
