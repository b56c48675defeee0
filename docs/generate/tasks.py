"""The tasks side by side: their labels, what the network gives, what accuracy is, and what the device answers."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping
from typing import NamedTuple

from docs.generate.options import module_of_source
from docs.generate.tables import code, table
from edgekit.core.tasks import TASKS, Task, named
from edgekit.data import source_names
from edgekit.runner import postprocess

HEADER = ("`task`", "labels", "the network gives", "accuracy", "trained by", "sources", "the device answers")


class Words(NamedTuple):
    """What of a task its code does not say in a table's few words."""

    labels: str
    gives: str
    trained_by: str


WORDS: Mapping[Task, Words] = {
    "classification": Words("(n,) whole numbers", "logits", "cross entropy"),
    "multi_label": Words("(n, labels), 0 or 1", "logits", "binary cross entropy"),
    "regression": Words("(n,) or (n, values)", "values", "squared error"),
    "anomaly": Words("(n,) 0 normal, 1 anomaly", "its input again", "squared error, on normal samples alone"),
    "detection": Words("(n, 1 + most, 5) boxes", "distances and logits for points of grids", "focal loss and GIoU"),
    "segmentation": Words("(n, height, width), 255 for none", "logits for the cells of a grid", "cross entropy and Dice"),
}


def overview() -> str:
    """The table of all tasks."""
    return table(HEADER, [row(task) for task in TASKS])


def row(task: Task) -> tuple[str, ...]:
    """What is told of one task."""
    words = WORDS[task]
    served = ", ".join(code(name) for name in source_names() if task in tasks_of(name))
    answers = ", ".join(code(name) for name in answer_fields(task))
    return (code(task), words.labels, words.gives, named(task).METRIC, words.trained_by, served, answers)


def tasks_of(source: str) -> tuple[Task, ...]:
    """The tasks that a data source serves."""
    served: tuple[Task, ...] = getattr(importlib.import_module(module_of_source(source)), "TASKS", TASKS)
    return served


def answer_fields(task: Task) -> list[str]:
    """What an answer of the task holds in JSON, beside how long it took."""
    module = importlib.import_module(f"{postprocess.__name__}.{task}")
    answer = getattr(module, "".join(part.capitalize() for part in task.split("_")))
    return [field.name for field in dataclasses.fields(answer) if field.name != "timing_ms"]
