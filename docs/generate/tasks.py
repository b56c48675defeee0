"""The tasks side by side: their labels, what the network gives, what accuracy is, and what the device answers."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import NamedTuple

from docs.generate.options import module_of_source
from docs.generate.tables import code, table
from edgekit.core.tasks import TASKS, Task, load_task
from edgekit.data import source_names

HEADER = ("`task`", "labels", "the network gives", "accuracy", "trained by", "sources", "the device answers")


class Words(NamedTuple):
    """What the table says of a task besides what its code defines."""

    labels: str
    gives: str
    trained_by: str
    answers: tuple[str, ...]
    """Keys of the device's JSON besides its input and times; `tests/tasks` compares them with its answers."""


WORDS: Mapping[Task, Words] = {
    "classification": Words("(n,) whole numbers", "logits", "cross entropy", ("label", "index", "top", "scores")),
    "multi_label": Words("(n, labels), 0 or 1", "logits", "binary cross entropy", ("labels", "probabilities")),
    "regression": Words("(n,) or (n, values)", "values", "squared error", ("values",)),
    "anomaly": Words(
        "(n,) 0 normal, 1 anomaly",
        "a reconstruction of its input, or a map of distances",
        "squared error, on normal samples only",
        ("is_anomaly", "score", "threshold", "label"),
    ),
    "detection": Words(
        "(n, 1 + most, 5) boxes", "distances and logits for points of grids", "focal loss and GIoU", ("boxes",)
    ),
    "keypoints": Words(
        "(n, 1 + most, 7 + 3 · keypoints) boxes with keypoints", "outputs of a model file", "not trained", ("boxes",)
    ),
    "instance_masks": Words(
        "(n, 1 + most, 6 + runs) boxes with run lengths", "outputs of a model file", "not trained", ("boxes",)
    ),
    "segmentation": Words(
        "(n, height, width), 255 for none",
        "logits for the cells of a grid",
        "cross entropy and Dice",
        ("shares", "masks"),
    ),
    "embedding": Words(
        "(n,) whole numbers, class or identity", "a vector", "supervised contrastive loss", ("embedding",)
    ),
}


def overview() -> str:
    """The table of all tasks."""
    return table(HEADER, [row(task) for task in TASKS])


def row(task: Task) -> tuple[str, ...]:
    """The row of one task."""
    words = WORDS[task]
    served = ", ".join(code(name) for name in source_names() if task in tasks_of(name))
    answers = ", ".join(code(name) for name in words.answers)
    return (code(task), words.labels, words.gives, _accuracies(task), words.trained_by, served, answers)


def _accuracies(task: Task) -> str:
    second = getattr(load_task(task), "SECOND", None)
    return f"{load_task(task).METRIC}; {second.metric} beside it" if second else str(load_task(task).METRIC)


def tasks_of(source: str) -> tuple[Task, ...]:
    """The tasks that a data source serves."""
    served: tuple[Task, ...] = getattr(importlib.import_module(module_of_source(source)), "TASKS", TASKS)
    return served
