"""What a network is for, and how well it does it: one file each, the file's name is the config's `task`.

A file offers

    METRIC                      what `accuracy` means everywhere for this task, a fraction that is 1 at best
    SAID                        the same in a sentence
    OUTPUTS                     what the names of its outputs are: classes, values
    AT_MOST_ONE                 whether one sample counts from 0 to 1 at most, so that few can show little
    names(y)                    names of the outputs where the data give none
    checked(name, y, names)     labels of a split in their normal form; DataError where they are none
    whole(name, y, names)       DataError where these labels cannot evaluate a split
    strata(y)                   (n,) int64: what a division into splits keeps in proportion
    score_samples(outputs, inputs, y)   what each sample says of the accuracy
    accuracy(marks)             a fraction
    drop(reference, marks, confidence)      how much lower, and at most how much (`accuracy_drop.Drop`)
    same(reference, outputs, inputs)        (n,) bool: which samples two networks answer alike
    constant_answer(y)          the accuracy of what always says the same, a fraction, and what that says

and, for what a mean over all samples hides,

    GROUP, SCORE, SCORE_RISES   what the answers are broken down by, what each group's score is, and if more is better
    RIGHT                       when a sample counts as answered rightly, as the end of a sentence
    answers(outputs, inputs)    what the network says of each sample, in few bytes: (n,) or (n, k)
    right(answers, y)           (n,) bool
    groups(answers, y, names)   the groups (`Group`), in the order of their names
    said(answers, y, names)     the answers in words
    labels_in_words(y, names)   the labels in words

and, where a field quotes two figures of accuracy,

    SECOND                      the other one (`Second`), which stands beside accuracy and decides nothing

and, where answers lie in the pictures that are their samples,

    closeness(answers, y)       (n,) from 0 to 1: how much of each is right; by it pictures are chosen to be drawn

`inputs` are what the network was given, in its own order of axes, where RECONSTRUCTS; where NEEDS_SHAPE, zeros of
that shape; else None.
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

Task = Literal["classification", "regression", "multi_label", "anomaly", "detection", "segmentation", "embedding"]
TASKS: tuple[Task, ...] = get_args(Task)


@dataclass(frozen=True, eq=False)
class SampleScores:
    """What each sample of a split says of a network's accuracy, as the task's file describes it: (n, k) float64."""

    task: Task
    values: np.ndarray

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True)
class Group:
    """One class, label or range of values: the network's score there, None where nothing can be said.

    `found` of its `samples` are answered as it, and `false` samples of others; None where answers are no names.
    """

    name: str
    samples: int
    score: float | None
    found: int | None = None
    false: int | None = None


@dataclass(frozen=True)
class SecondMetric:
    """Another figure of accuracy: its name, what it is as the end of a sentence, and itself, a fraction of marks."""

    metric: str
    description: str
    compute: Callable[[SampleScores], float]


SampleResults = Union["np.ndarray", SampleScores]
"""Of a classification (n,) bool, whether each sample was answered rightly; of the other tasks their marks."""


def load_task(task: str) -> Any:
    """The file of a task."""
    return importlib.import_module(f"{__name__}.{task}")


def accuracy(answered: SampleResults) -> float:
    """A fraction."""
    return float(_of(answered).accuracy(answered))


def second_metric(answered: SampleResults) -> SecondMetric | None:
    """The other figure that the task of these answers has, if any."""
    found: SecondMetric | None = getattr(_of(answered), "SECOND", None)
    return found


def drop(reference: SampleResults, answered: SampleResults, confidence: float) -> Drop:
    """How far the accuracy lies below the reference's on the same samples; DataError where they are not the same."""
    if len(reference) != len(answered):
        raise DataError(
            f"answers to {len(reference)} and to {len(answered)} samples cannot be compared; "
            "answer the same samples with both networks"
        )
    found: Drop = _of(answered).drop(reference, answered, confidence)
    return found


def why_no_better_than_guessing(task: Task, outputs: np.ndarray, y: np.ndarray) -> str:
    """Why outputs that need no input to be judged tell nothing of the labels, or an empty text."""
    kind = load_task(task)
    found, (guessed, saying) = accuracy(kind.score_samples(outputs, None, y)), kind.constant_answer(y)
    if found > guessed:
        return ""
    return f"{kind.METRIC} {found:.1%} on validation, and {saying} would give {guessed:.1%}"


def _of(answered: SampleResults) -> Any:
    return load_task(answered.task if isinstance(answered, SampleScores) else "classification")
