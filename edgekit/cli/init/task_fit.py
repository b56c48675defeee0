"""Check that labels fit the task; the error names a task that they would fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgekit.cli.init.findings import Findings
from edgekit.core.errors import ConfigError
from edgekit.core.tasks import Task, anomaly
from edgekit.data import tasks_served

if TYPE_CHECKING:
    import numpy as np

WANTED = {
    "classification": "whole numbers, one a sample: the class, from 0",
    "regression": "floating-point numbers, one a sample or (n, values)",
    "multi_label": "0 or 1 in whole numbers, (n, labels)",
    "segmentation": "masks, (n, height, width): the class of each pixel, 255 for none",
    "anomaly": "whole numbers, one a sample: 0 normal, 1 anomaly",
    "embedding": "whole numbers, one a sample: its class or identity, from 0",
}
FOLDERS = ("classification", "embedding", "anomaly")
IN_PICTURES = {"detection": "boxes", "segmentation": "masks"}
"""Tasks that have a source of their own."""


def check(task: str, found: Findings) -> None:
    """ConfigError where the data cannot serve the task."""
    if found.task in IN_PICTURES and task != found.task:
        raise ConfigError(f"--task {task}: {found.words}, and no classes; use --task {found.task}, or leave --task out")
    if found.section["source"] in IN_PICTURES.values():
        return
    if task == "detection" and found.section["source"] == "image_folder":
        raise ConfigError(
            f"--task detection: {found.words} has no boxes; put annotations beside the pictures, of Pascal VOC, COCO "
            "or YOLO"
        )
    if task == "detection":
        own = "; for boxes in arrays, write the config by hand" if found.section["source"] == "npz" else ""
        raise ConfigError(
            f"--task detection: {found.words}, and edgekit init reads boxes beside pictures alone: of Pascal VOC "
            f"(Annotations/*.xml), COCO (a .json for each split) or YOLO (labels/split/*.txt); give it such a "
            f"folder or zip{own}"
        )
    if task == "segmentation" and found.section["source"] == "image_folder":
        raise ConfigError(
            f"--task segmentation: {found.words} has no masks; put them beside the pictures, images/SPLIT/NAME.jpg and "
            "masks/SPLIT/NAME.png"
        )
    if found.section["source"] == "csv_rows":
        _check_rows(task, found)
    elif found.section["source"] != "npz" and task not in (FOLDERS if found.classes else FOLDERS[:2]):
        raise ConfigError(
            f"--task {task}: {found.words} has one class a sample, and {task} wants {WANTED[task]}; use --task "
            "classification, or give an .npz with such a y_train"
        )
    served = tasks_served(found.section["source"])
    if task not in served:
        raise ConfigError(
            f"--task {task}: {found.words}, which can serve {_either(served)}; use one of these, or give other data"
        )
    if task == "anomaly" and found.classes:
        normal = [name for name in found.classes if name.lower() in anomaly.NORMAL]
        if len(normal) != 1 or len(found.classes) < 2:
            raise ConfigError(
                f"--task anomaly: the classes are {', '.join(found.classes)}; one of them must be called "
                f"{' or '.join(anomaly.NORMAL)}, and all others are anomalies: there must be at least one"
            )
    elif found.section["source"] == "npz" and found.labels is not None and task not in (fits := tasks_of(found.labels)):
        y = found.labels
        instead = f"; they look like --task {fits[0]}" if fits else ""
        raise ConfigError(
            f"--task {task}: y_train is {y.dtype} of shape {y.shape}, and {task} wants {WANTED[task]}{instead}"
        )


def _either(served: Sequence[str]) -> str:
    *others, last = served
    return f"{', '.join(others)} or {last}" if others else last


def _check_rows(task: str, found: Findings) -> None:
    """ConfigError for words as values, for values as classes, and for several labels, which a config must name."""
    label, values = found.section["label"], found.labels
    if task == "multi_label":
        raise ConfigError(
            f"--task multi_label: a table has a column for each label; write the config by hand, with data.label: "
            f"[{label}, …]"
        )
    if task == "regression" and values is None:
        raise ConfigError(f"--task regression: the labels in {label!r} are words; use --task classification")
    if task in ("classification", "embedding") and values is not None and values.dtype.kind == "f":
        raise ConfigError(f"--task {task}: the labels in {label!r} are measured values; use --task regression")


def tasks_of(y: np.ndarray) -> tuple[Task, ...]:
    """The tasks that such labels can serve, the likeliest first."""
    if y.dtype.kind == "f":
        return ("regression",) if y.ndim in (1, 2) else ()
    if y.dtype.kind in "iu" and y.ndim == 3:
        return ("segmentation",)
    if y.dtype.kind not in "iub" or y.ndim not in (1, 2):
        return ()
    of_two = set(y.ravel().tolist()) <= {0, 1}
    if y.ndim == 2:
        return ("multi_label",) if of_two else ()
    kinds: tuple[Task, ...] = ("classification", "embedding") if y.dtype.kind != "b" else ()
    return (*kinds, "anomaly") if of_two else kinds
