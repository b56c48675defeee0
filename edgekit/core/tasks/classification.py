"""Assign each sample to one of several classes.

Accuracy is the share of samples whose highest score is that of their class.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgekit.core.errors import DataError
from edgekit.core.tasks import Group
from edgekit.core.tasks.accuracy_drop import Drop, drop_of_answers
from edgekit.core.tasks.labels import quote_names

METRIC = "top-1 accuracy"
METRIC_TEXT = "accuracy is the share of samples whose highest score is that of their class"
OUTPUTS_NAME = "classes"
AT_MOST_ONE = True
RECONSTRUCTS = False
NEEDS_SHAPE = False
GROUP, SCORE, SCORE_RISES = "class", "recall", True
CORRECT_WHEN = "the highest score is that of their class"


def default_names(y: np.ndarray) -> tuple[str, ...]:
    """Return names for labels (n,): "0", "1", … up to the highest.

    Raises DataError if the highest label is not below the number of samples.
    """
    if y.dtype.kind not in "iu" or not y.size:
        return ("0", "1")  # `normalize_labels` refuses such labels later
    highest = int(y.max())
    if highest >= len(y):
        raise DataError(
            f"the highest label in y_train is {highest}, but there are only {len(y)} samples; "
            "number the classes 0, 1, … without gaps, or name them in `classes`"
        )
    return tuple(str(index) for index in range(highest + 1))


def normalize_labels(name: str, y: np.ndarray, names: tuple[str, ...]) -> np.ndarray:
    """Return (n,) int64, each the index of its class in `names`."""
    if y.ndim != 1 or not np.issubdtype(y.dtype, np.integer):
        raise DataError(
            f"{name}: labels are {y.dtype} of shape {y.shape}; they must be integers, one per sample "
            "(one-hot labels: take argmax over the last axis)"
        )
    if len(names) < 2:
        raise DataError(f"classes: got {list(names)}; a classifier needs at least two")
    wrong = np.flatnonzero((y < 0) | (y >= len(names)))
    if len(wrong):
        raise DataError(
            f"{name}: label {y[wrong[0]]} at sample {wrong[0]} ({len(wrong)} such labels); "
            f"labels must be 0 to {len(names) - 1}, one per name in classes"
        )
    return y.astype(np.int64)


def check_split(name: str, y: np.ndarray, names: tuple[str, ...]) -> None:
    """Check that every class has a sample in this split."""
    counts = np.bincount(y, minlength=len(names))
    empty = [names[index] for index in np.flatnonzero(counts == 0)]
    if empty:
        raise DataError(
            f"{name}: no sample of class {quote_names(empty)} ({len(empty)} of {len(names)} classes are empty); "
            "add different samples (copies of one count once), raise data.limit, or remove the class"
        )


def strata(y: np.ndarray) -> np.ndarray:
    """Return the classes, which divisions into splits keep in proportion."""
    return y


def score_samples(outputs: np.ndarray, inputs: np.ndarray | None, y: np.ndarray) -> np.ndarray:
    """Return which of the scores (n, classes) are highest at the right class, (n,) bool."""
    return np.equal(outputs.argmax(axis=1), y)


def accuracy(correct: np.ndarray) -> float:
    """Return the share of correct answers."""
    return float(np.mean(correct))


def drop(reference: np.ndarray, correct: np.ndarray, confidence: float) -> Drop:
    """Return the drop, with Tango's interval."""
    return drop_of_answers(reference, correct, confidence)


def same_answers(reference: np.ndarray, outputs: np.ndarray, inputs: np.ndarray | None) -> np.ndarray:
    """Return which samples have their highest score at the same class in both outputs."""
    return np.equal(reference.argmax(axis=1), outputs.argmax(axis=1))


def constant_answer(y: np.ndarray) -> tuple[float, str]:
    """Return the accuracy of always naming the most frequent class."""
    return float(np.bincount(y).max() / len(y)), "always naming one class"


def answers(outputs: np.ndarray, inputs: np.ndarray | None) -> np.ndarray:
    """Return the class with the highest score for each sample, (n,) int32."""
    return outputs.argmax(axis=1).astype(np.int32)


def is_correct(answers: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return which answers equal the label."""
    return np.asarray(answers == y)


def groups(answers: np.ndarray, y: np.ndarray, names: Sequence[str]) -> list[Group]:
    """Return the classes, each with its recall."""
    count = len(names)
    samples, predictions = (np.bincount(values, minlength=count)[:count] for values in (y, answers))
    hits = np.bincount(y[answers == y], minlength=count)[:count]
    return [
        Group(name, int(n), int(hit) / int(n) if n else None, int(hit), int(predicted - hit))
        for name, n, hit, predicted in zip(names, samples, hits, predictions, strict=True)
    ]


def describe_answers(answers: np.ndarray, y: np.ndarray, names: Sequence[str]) -> list[str]:
    """Return the names of the classes."""
    return [names[int(answer)] for answer in answers]


def describe_labels(y: np.ndarray, names: Sequence[str]) -> list[str]:
    """Return the names of the classes."""
    return [names[int(label)] for label in y]
