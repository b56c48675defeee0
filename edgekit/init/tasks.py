"""Whether labels fit a task: refused with the reason, and with the task that they would fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

from edgekit.errors import ConfigError
from edgekit.init.found import Found

if TYPE_CHECKING:
    import numpy as np

Task = Literal["classification", "regression", "multi_label", "anomaly"]
TASKS: tuple[Task, ...] = get_args(Task)
NORMAL = "normal"
WANTED = {
    "classification": "whole numbers, one a sample: the class, from 0",
    "regression": "floating-point numbers, one a sample or (n, targets)",
    "multi_label": "0 or 1 in whole numbers, (n, labels)",
    "anomaly": "whole numbers, one a sample: 0 normal, 1 anomaly",
}


def check(task: str, found: Found) -> None:
    """ConfigError where the data cannot serve the task."""
    if found.labels is not None:
        fits = tasks_of(found.labels)
        if task not in fits:
            y = found.labels
            instead = f"; they look like --task {fits[0]}" if fits else ""
            raise ConfigError(
                f"--task {task}: y_train is {y.dtype} of shape {y.shape}, and {task} wants {WANTED[task]}{instead}"
            )
    elif found.classes is not None and task == "anomaly":
        if NORMAL not in found.classes or len(found.classes) < 2:
            raise ConfigError(
                f"--task anomaly: the class folders are {', '.join(found.classes)}; one must be named {NORMAL!r}, and "
                "at least one other hold what is not"
            )
    elif found.section["source"] != "npz" and task not in ("classification", "anomaly" if found.classes else ""):
        raise ConfigError(
            f"--task {task}: {found.words} has one class a sample, and {task} wants {WANTED[task]}; use --task "
            "classification, or give an .npz with such a y_train"
        )


def tasks_of(y: np.ndarray) -> tuple[Task, ...]:
    """The tasks that such labels can serve, the likeliest first."""
    if y.dtype.kind == "f":
        return ("regression",) if y.ndim in (1, 2) else ()
    if y.dtype.kind not in "iu" or not y.size:
        return ()
    if y.ndim == 2:
        return ("multi_label",) if set(y.ravel().tolist()) <= {0, 1} else ()
    if y.ndim == 1:
        return ("classification", "anomaly") if set(y.tolist()) <= {0, 1} else ("classification",)
    return ()
