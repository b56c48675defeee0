"""Tasks, which define what a network is for and how its accuracy is measured.

Each task is a module with the name that a config gives as `task`.

A module offers

    METRIC                      the name of its accuracy, a fraction that is at most 1
    METRIC_TEXT                 a sentence that explains it
    OUTPUTS_NAME                what the names of its outputs are: classes, values
    AT_MOST_ONE                 whether each sample contributes 0 to 1 to the accuracy. If so, the number of samples
                                limits how small a drop can be shown
    default_names(y)            names of the outputs if the data have none
    normalize_labels(name, y, names)    labels of a split in their normal form; DataError if they are not valid
    check_split(name, y, names) DataError if these labels cannot evaluate a split
    strata(y)                   (n,) int64: the stratum of each sample; splits keep the proportions of the strata
    score_samples(outputs, inputs, y)   the scores of each sample, from which accuracy is computed
    accuracy(scores)            a fraction
    drop(reference, scores, confidence)     the accuracy drop with its upper bound (`accuracy_drop.Drop`)
    same_answers(reference, outputs, inputs)    (n,) bool: which samples two networks answer alike
    constant_answer(y)          the accuracy of a constant answer, a fraction, and a description of that answer

and, to show differences that a mean over all samples hides,

    GROUP, SCORE, SCORE_RISES   what answers are grouped by, the name of a group's score, and whether higher is better
    CORRECT_WHEN                when a sample counts as answered correctly, as the end of a sentence
    answers(outputs, inputs)    the answer to each sample in few bytes: (n,) or (n, k)
    is_correct(answers, y)      (n,) bool
    groups(answers, y, names)   the groups (`Group`), in the order of their names
    describe_answers(answers, y, names)     the answers as texts
    describe_labels(y, names)   the labels as texts

and, if the field usually quotes two accuracy metrics,

    SECOND                      the other one (`SecondMetric`), which is reported beside accuracy and decides nothing

and, if the accuracy is quoted with an interval,

    interval(scores, confidence)    the interval of the accuracy, two fractions

and, if answers have a position in the pictures,

    closeness(answers, y)       (n,) from 0 to 1: how much of each answer is right, to choose pictures to draw
    drawn_answers(answers, y)   the answers in the form in which they are drawn, if it is another one

The argument `inputs` depends on two more constants of the module. If RECONSTRUCTS is true, it holds the network's
inputs in the network's order of axes. If NEEDS_SHAPE is true, it is an array of the same shape that holds only zeros.
Otherwise, it is None.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Union, get_args

from edgekit.core.errors import DataError

if TYPE_CHECKING:
    import numpy as np

    from edgekit.core.tasks.accuracy_drop import Drop

Task = Literal[
    "classification", "regression", "multi_label", "anomaly", "detection", "keypoints", "instance_masks",
    "segmentation", "embedding"
]  # fmt: skip
TASKS: tuple[Task, ...] = get_args(Task)
BOX_TASKS: tuple[Task, ...] = ("detection", "keypoints", "instance_masks")
"""Tasks whose labels and answers are boxes, alone or with more about each object."""
FILE_TASKS: tuple[Task, ...] = ("keypoints", "instance_masks")
"""Tasks whose networks come as model files only, because edgekit trains none."""


@dataclass(frozen=True, eq=False)
class SampleScores:
    """The contribution of each sample to a network's accuracy.

    `values` is (n, k) float64; the task defines what each column means.
    """

    task: Task
    values: np.ndarray

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True)
class Group:
    """One class, label or range of values with the network's score, which is None if it cannot be computed.

    `found` is the number of its `samples` for which the network predicts this class or label, and `false` is the number
    of other samples for which it does. Both are None if answers are values.
    """

    name: str
    samples: int
    score: float | None
    found: int | None = None
    false: int | None = None


@dataclass(frozen=True)
class SecondMetric:
    """Another accuracy metric: its name, a description that ends a sentence, and a function that computes it."""

    metric: str
    description: str
    compute: Callable[[SampleScores], float]


SampleResults = Union["np.ndarray", SampleScores]
"""In classification, whether each sample was answered correctly, (n,) bool; in other tasks, the samples' scores."""


def load_task(task: str) -> Any:
    """Return the module of a task.

    Examples
    --------
    >>> load_task("regression").METRIC
    'R²'
    """
    return importlib.import_module(f"{__name__}.{task}")


def accuracy(results: SampleResults) -> float:
    """Return the accuracy, a fraction."""
    return float(_task_of(results).accuracy(results))


def second_metric(results: SampleResults) -> SecondMetric | None:
    """Return the task's second accuracy metric, or None if it has only one."""
    metric: SecondMetric | None = getattr(_task_of(results), "SECOND", None)
    return metric


def drop(reference: SampleResults, results: SampleResults, confidence: float) -> Drop:
    """Return how far the accuracy is below the reference's accuracy on the same samples.

    Raises
    ------
    DataError
        The numbers of samples differ.
    """
    if len(reference) != len(results):
        raise DataError(
            f"answers to {len(reference)} and to {len(results)} samples cannot be compared; "
            "answer the same samples with both networks"
        )
    difference: Drop = _task_of(results).drop(reference, results, confidence)
    return difference


def why_no_better_than_guessing(task: Task, outputs: np.ndarray, y: np.ndarray) -> str:
    """Return why a network is no better than a constant answer, or an empty text if it is better.

    `task` must be one that needs no inputs to score samples.
    """
    task_module = load_task(task)
    reached, (guessing, description) = (
        accuracy(task_module.score_samples(outputs, None, y)),
        task_module.constant_answer(y),
    )
    if reached > guessing:
        return ""
    return f"{task_module.METRIC} {reached:.1%} on validation, and {description} would give {guessing:.1%}"


def _task_of(results: SampleResults) -> Any:
    return load_task(results.task if isinstance(results, SampleScores) else "classification")
