"""What samples must be before anything is made of them; every fault is a DataError that says where and what to do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from edgekit import tasks
from edgekit.data.types import Kind, Pools, Split
from edgekit.errors import DataError
from edgekit.tasks import Task
from edgekit.tasks.labels import some

_CHUNK_SAMPLES = 4096


def normal(pools: Pools, task: Task = "classification") -> Pools:
    """Labels as the task has them, vectors as float32; refuse whatever is not raw samples with a label each."""
    kind = tasks.named(task)
    checked = {name: _split(name, split, pools.kind) for name, split in pools.given().items()}
    _names(pools.classes)
    shapes = {name: split.x.shape[1:] for name, split in checked.items()}
    if len(set(shapes.values())) > 1:
        told = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise DataError(f"samples differ in shape between splits: {told}; give all splits the same shape")
    checked = {name: Split(split.x, kind.checked(name, split.y, pools.classes)) for name, split in checked.items()}
    if task == "anomaly":  # how anomalies come into each split is decided where the samples are divided
        return replace(pools.with_splits(checked), classes=kind.NAMES)
    for name, split in checked.items():
        kind.whole(name, split.y, pools.classes)
    return pools.with_splits(checked)


def _split(name: str, split: Split, kind: Kind) -> Split:
    x, y = split.x, split.y
    if x.ndim < 2 or y.ndim < 1 or len(x) != len(y):
        raise DataError(f"{name}: {x.shape} samples and {y.shape} labels; the first axis of both must be as long")
    if not len(x):
        raise DataError(f"{name}: no samples at all; leave the split out or fill it")
    return Split(_image(name, x) if kind == "image" else _vector(name, x), y)


def _image(name: str, x: np.ndarray) -> np.ndarray:
    if x.dtype != np.uint8 or x.ndim != 4 or x.shape[3] not in (1, 3) or 0 in x.shape:
        raise DataError(
            f"{name}: images are {x.dtype} of shape {x.shape}; they must be uint8 (n, height, width, 1 or 3), "
            "as a camera gives them: scaling belongs in `preprocess`"
        )
    return x


def _vector(name: str, x: np.ndarray) -> np.ndarray:
    if x.ndim != 2 or not np.issubdtype(x.dtype, np.floating) or x.shape[1] == 0:
        raise DataError(
            f"{name}: vectors are {x.dtype} of shape {x.shape}; they must be floating-point (n, features); "
            "convert with x.reshape(len(x), -1).astype('float32')"
        )
    # A float64 beyond float32's range turns into an infinity here, and is reported as one below.
    with np.errstate(over="ignore"):
        x = x.astype(np.float32, copy=False)
    for start in range(0, len(x), _CHUNK_SAMPLES):
        bad = ~np.isfinite(x[start : start + _CHUNK_SAMPLES]).all(axis=1)
        if bad.any():
            first = start + int(np.argmax(bad))
            feature = int(np.argmax(~np.isfinite(x[first])))
            raise DataError(
                f"{name}: sample {first}, feature {feature} is {x[first, feature]}; "
                "NaN and infinity (in float32) are not samples: repair or remove them"
            )
    return x


def _names(names: tuple[str, ...]) -> None:
    if len(set(names)) != len(names) or not all(names):
        raise DataError(f"classes: got {some(names)}; names must be unique and not empty")
