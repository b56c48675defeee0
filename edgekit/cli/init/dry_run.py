"""Check a config before it is written, with the functions that a run uses to read it and its data."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.cli.init import sizes
from edgekit.cli.init.config import Draft, scalar
from edgekit.cli.init.inspect import Findings
from edgekit.cli.init.sizes import Sizes
from edgekit.core.errors import ConfigError, DataError
from edgekit.core.tasks import Task, anomaly
from edgekit.data import Data, tasks_served
from edgekit.data import load as load_data
from edgekit.data.splits import quarter
from edgekit.runner.preprocess.steps import check as check_steps
from edgekit.training import positives
from edgekit.workbook.plan import Plan, load_plan

if TYPE_CHECKING:
    import numpy as np

LEAST_TRAIN = 2
PROGRESS = 100
"""Samples between two words of how far the reading is."""


def draft(name: str, task: str, found: Findings, written: str | None) -> Draft:
    """The config for these data, which have been read and split as it says; `written` is the path as it stands there.

    They are read twice: only their number says how many of them may calibrate, and what is measured must be measured
    on the train split that this leaves.
    """
    section = {**found.section}
    section |= {f"{split}_fraction": 0.2 for split in ("validation", "test") if split not in found.splits}
    data = _read(name, task, {**section, "calibration_samples": 1, "overlap": "drop"})
    section["calibration_samples"] = quarter(len(data.train) + len(data.calibration))
    if any(note.startswith("overlap:") for note in data.notes):
        section["overlap"] = "drop"
    del data
    data = _read(name, task, section)
    if section["source"] == "npz":
        found = replace(found, words=f"{found.words} of {_shapes(data)}")
    if len(data.train) < LEAST_TRAIN:
        left = f"{len(data.train)} sample{'' if len(data.train) == 1 else 's'}"
        more = "more normal samples" if task == "anomaly" else "more samples"
        raise DataError(f"--data: {left} would be left for training after calibration and validation; give {more}")
    splits = (data.train, data.calibration, data.validation, data.test)
    if written is not None:
        section["path"] = written
    least = positives.least(data.train.y) if task == "embedding" else 2
    return Draft(name, task, found, section, data, replace(Sizes(*map(len, splits)), least_batch=least))


def check(text: str, section: dict[str, Any], data: Data) -> None:
    """Every key and every combination in it, and the steps against the samples; the error of a run where it fails."""
    plan = _plan(text, [f"data.path={scalar(section['path'])}"] if "path" in section else [])
    check_steps(plan.run.preprocess, data.raw_shape, data.raw_dtype)


def _read(name: str, task: str, section: dict[str, Any]) -> Data:
    lines = [
        f"name: {scalar(name)}",
        f"task: {task}",
        f"data: {scalar(section)}",
        f"model: {{builder: {sizes.ANY}}}",
    ]
    return load_data(_plan("\n".join(lines), [], checked_before=True).data, _progress)


def _shapes(data: Data) -> str:
    """What arrays turned out to hold: only their source knows."""
    if data.tensors:
        return data.sample_in_words
    shape = "×".join(map(str, data.raw_shape))
    called = {"image": "pictures of", "vector": "vectors of", "window": "windows of"}
    return f"{called.get(data.kind, data.kind)} {shape}{' numbers' if data.kind == 'vector' else ''}"


def _plan(text: str, settings: list[str], checked_before: bool = False) -> Plan:
    with tempfile.TemporaryDirectory(prefix="edgekit-init-") as folder:
        path = Path(folder) / "config.yaml"
        path.write_text(text, encoding="utf-8")
        return load_plan(path, settings, checked_before=checked_before)


def _progress(done: int, total: int) -> None:
    if sys.stderr.isatty() and (done % PROGRESS == 0 or done == total):
        print(f"\rread {done:,} of {total:,}", end="\n" if done == total else "", file=sys.stderr, flush=True)


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


def check_task(task: str, found: Findings) -> None:
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
