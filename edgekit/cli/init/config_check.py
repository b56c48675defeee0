"""Check a config before it is written, with the functions that a run uses to read it and its data."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.cli.init import pretrained_network, sizes
from edgekit.cli.init.config import ConfigDraft, to_yaml
from edgekit.cli.init.inspection import Findings
from edgekit.cli.init.sizes import SplitSizes
from edgekit.core.errors import ConfigError, DataError
from edgekit.core.tasks import Task, anomaly
from edgekit.data import Data, supported_tasks
from edgekit.data import load as load_data
from edgekit.data.splits import calibration_size
from edgekit.runner.preprocess.steps import check as check_steps
from edgekit.training import positives
from edgekit.workbook.plan import Plan, load_plan

if TYPE_CHECKING:
    import numpy as np

MIN_TRAIN = 2
PROGRESS_INTERVAL = 100
"""Number of samples between two progress reports."""


def draft_config(name: str, task: str, findings: Findings, path_in_config: str | None) -> ConfigDraft:
    """Read and split the data, and draft the config for them. `path_in_config` is the path to write into the config.

    The data are read twice, because the number of calibration samples depends on the number of samples, and statistics
    must be computed on the train split that remains.
    """
    if pretrained_side := pretrained_network.sample_side(task, findings):
        findings = pretrained_network.with_side(findings, pretrained_side)
    starts_pretrained = pretrained_side > 0 or findings.starts_pretrained
    section = {**findings.section}
    section |= {f"{split}_fraction": 0.2 for split in ("validation", "test") if split not in findings.splits}
    data = read_data(name, task, {**section, "calibration_samples": 1, "overlap": "drop"})
    section["calibration_samples"] = calibration_size(len(data.train) + len(data.calibration))
    if any(note.startswith("overlap:") for note in data.notes):
        section["overlap"] = "drop"
    del data
    data = read_data(name, task, section)
    if section["source"] == "npz":
        findings = replace(findings, description=f"{findings.description} of {_describe_shapes(data)}")
    if len(data.train) < MIN_TRAIN:
        remaining = f"{len(data.train)} sample{'' if len(data.train) == 1 else 's'}"
        hint = "more normal samples" if task == "anomaly" else "more samples"
        raise DataError(f"--data: {remaining} would be left for training after calibration and validation; give {hint}")
    splits = (data.train, data.calibration, data.validation, data.test)
    if path_in_config is not None:
        section["path"] = path_in_config
    least_batch = positives.min_batch_size(data.train.y) if task == "embedding" else 2
    split_sizes = replace(SplitSizes(*map(len, splits)), least_batch=least_batch)
    return ConfigDraft(name, task, findings, section, data, split_sizes, starts_pretrained=starts_pretrained)


def check_config(text: str, section: dict[str, Any], data: Data, source: Path | None = None) -> None:
    """Check all options of the config, and its preprocess steps against the samples.

    Faults raise the same errors as in a run.

    `source` is the model file, if the config names one.
    """
    settings = [f"data.path={to_yaml(section['path'])}"] if "path" in section else []
    settings += [f"model.source={to_yaml(str(source))}"] if source is not None else []
    plan = _load_plan(text, settings)
    check_steps(plan.run.preprocess, data.raw_shape, data.raw_dtype)


def read_data(name: str, task: str, section: dict[str, Any]) -> Data:
    """Read and split the data of a section, as a run with this name would."""
    lines = [
        f"name: {to_yaml(name)}",
        f"task: {task}",
        f"data: {to_yaml(section)}",
        f"model: {{builder: {sizes.PLACEHOLDER_BUILDER}}}",
    ]
    return load_data(_load_plan("\n".join(lines), [], checked_before=True).data, _progress)


def _describe_shapes(data: Data) -> str:
    """Describe the contents of arrays, which are known only after their source has read them."""
    if data.tensors:
        return data.sample_description
    shape = "×".join(map(str, data.raw_shape))
    nouns = {"image": "pictures of", "vector": "vectors of", "window": "windows of"}
    return f"{nouns.get(data.kind, data.kind)} {shape}{' numbers' if data.kind == 'vector' else ''}"


def _load_plan(text: str, settings: list[str], checked_before: bool = False) -> Plan:
    with tempfile.TemporaryDirectory(prefix="edgekit-init-") as folder:
        path = Path(folder) / "config.yaml"
        path.write_text(text, encoding="utf-8")
        return load_plan(path, settings, checked_before=checked_before)


def _progress(done: int, total: int) -> None:
    if sys.stderr.isatty() and (done % PROGRESS_INTERVAL == 0 or done == total):
        print(f"\rread {done:,} of {total:,}", end="\n" if done == total else "", file=sys.stderr, flush=True)


EXPECTED_LABELS = {
    "classification": "integers, one per sample: the class, from 0",
    "regression": "floating-point numbers, one per sample or (n, values)",
    "multi_label": "0 or 1 as integers, (n, labels)",
    "segmentation": "masks, (n, height, width): the class of each pixel, 255 for none",
    "anomaly": "integers, one per sample: 0 normal, 1 anomaly",
    "embedding": "integers, one per sample: its class or identity, from 0",
}
CLASS_TASKS = ("classification", "embedding", "anomaly")
ANNOTATION_SOURCES = {
    "detection": "boxes", "keypoints": "keypoints", "instance_masks": "instance_masks", "segmentation": "masks",
}  # fmt: skip
"""Tasks with a data source of their own."""


def check_task(task: str, findings: Findings) -> None:
    """Check that the data can serve the task.

    Raises
    ------
    ConfigError
        The data cannot serve the task.
    """
    if findings.task in ANNOTATION_SOURCES and task != findings.task:
        raise ConfigError(
            f"--task {task}: {findings.description}, and no classes; use --task {findings.task}, or leave --task out"
        )
    if findings.section["source"] in ANNOTATION_SOURCES.values():
        return
    if task == "detection" and findings.section["source"] == "image_folder":
        raise ConfigError(
            f"--task detection: {findings.description} has no boxes; put annotations beside the pictures, of Pascal "
            "VOC, COCO or YOLO"
        )
    if task == "detection":
        hint = "; for boxes in arrays, write the config by hand" if findings.section["source"] == "npz" else ""
        raise ConfigError(
            f"--task detection: {findings.description}, and edgekit init reads boxes only beside pictures, as Pascal "
            f"VOC (Annotations/*.xml), COCO (a .json for each split) or YOLO (labels/split/*.txt); give it such a "
            f"folder or zip{hint}"
        )
    if task == "segmentation" and findings.section["source"] == "image_folder":
        raise ConfigError(
            f"--task segmentation: {findings.description} has no masks; put them beside the pictures, "
            "images/SPLIT/NAME.jpg and masks/SPLIT/NAME.png"
        )
    if findings.section["source"] == "csv_rows":
        _check_rows(task, findings)
    elif findings.section["source"] != "npz" and task not in (CLASS_TASKS if findings.classes else CLASS_TASKS[:2]):
        raise ConfigError(
            f"--task {task}: {findings.description} has one class per sample, but {task} needs "
            f"{EXPECTED_LABELS[task]}; use --task classification, or give an .npz with such a y_train"
        )
    supported = supported_tasks(findings.section["source"])
    if task not in supported:
        raise ConfigError(
            f"--task {task}: {findings.description}, which can serve {_join_with_or(supported)}; use one of these, or "
            "give other data"
        )
    if task == "anomaly" and findings.classes:
        normal = [name for name in findings.classes if name.lower() in anomaly.NORMAL_CLASSES]
        if len(normal) != 1 or len(findings.classes) < 2:
            raise ConfigError(
                f"--task anomaly: the classes are {', '.join(findings.classes)}; one of them must be called "
                f"{' or '.join(anomaly.NORMAL_CLASSES)}, and all others are anomalies: there must be at least one"
            )
    elif (
        findings.section["source"] == "npz"
        and findings.labels is not None
        and task not in (possible_tasks := tasks_of(findings.labels))
    ):
        y = findings.labels
        hint_of_tasks = f"; they look like --task {possible_tasks[0]}" if possible_tasks else ""
        raise ConfigError(
            f"--task {task}: y_train is {y.dtype} of shape {y.shape}, but {task} needs "
            f"{EXPECTED_LABELS[task]}{hint_of_tasks}"
        )


def _join_with_or(names: Sequence[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last


def _check_rows(task: str, findings: Findings) -> None:
    """Check the labels of a table against the task.

    Raises
    ------
    ConfigError
        A regression has words as labels, a classification has measured values, or several label columns are needed.
    """
    label, values = findings.section["label"], findings.labels
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
    """Return the tasks that labels like these can serve, the most likely task first."""
    if y.dtype.kind == "f":
        return ("regression",) if y.ndim in (1, 2) else ()
    if y.dtype.kind in "iu" and y.ndim == 3:
        return ("segmentation",)
    if y.dtype.kind not in "iub" or y.ndim not in (1, 2):
        return ()
    is_binary = set(y.ravel().tolist()) <= {0, 1}
    if y.ndim == 2:
        return ("multi_label",) if is_binary else ()
    tasks: tuple[Task, ...] = ("classification", "embedding") if y.dtype.kind != "b" else ()
    return (*tasks, "anomaly") if is_binary else tasks
