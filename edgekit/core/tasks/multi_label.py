"""Assign any number of labels to each sample.

Accuracy is the F1 of all labels of all samples together (micro-averaged): F1 = 2 TP / (2 TP + FP + FN). A label is
predicted if its probability is at least 0.5, that is if its logit is not negative.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgekit.core.errors import DataError
from edgekit.core.tasks import Group, SampleScores
from edgekit.core.tasks.accuracy_drop import Drop, bootstrap_drop
from edgekit.core.tasks.labels import label_columns, quote_names

METRIC = "F1"
METRIC_TEXT = (
    "accuracy is F1 over all labels: their precision and recall where a probability of 0.5 or more predicts a label"
)
OUTPUTS_NAME = "labels"
AT_MOST_ONE = True
RECONSTRUCTS = False
NEEDS_SHAPE = False
GROUP, SCORE, SCORE_RISES = "label", "F1", True
CORRECT_WHEN = "each of their labels is predicted, and no other"


def default_names(y: np.ndarray) -> tuple[str, ...]:
    """Return names for labels (n, labels): "0", "1", …"""
    return tuple(str(index) for index in range(y.shape[1] if y.ndim == 2 else 1))


def normalize_labels(name: str, y: np.ndarray, names: tuple[str, ...]) -> np.ndarray:
    """Return (n, labels) int64, 0 or 1."""
    table = label_columns(name, y, names, "several labels at once are (n, labels), each 0 or 1")
    wrong = np.argwhere((table != 0) & (table != 1))
    if len(wrong):
        sample, column = wrong[0]
        raise DataError(f"{name}: {names[column]!r} of sample {sample} is {table[sample, column]}; it must be 0 or 1")
    return table.astype(np.int64)


def check_split(name: str, y: np.ndarray, names: tuple[str, ...]) -> None:
    """Check that every label is present at least once and absent at least once."""
    for is_covered, problem in ((y.any(axis=0), "no sample has"), ((y == 0).any(axis=0), "every sample has")):
        missing = [names[index] for index in np.flatnonzero(~is_covered)]
        if missing:
            raise DataError(
                f"{name}: {problem} {quote_names(missing)}; add other samples, raise data.limit, or remove the label"
            )


def strata(y: np.ndarray) -> np.ndarray:
    """Return the stratum of each sample, which is given by its rarest label; 0 if it has none."""
    rarest_first = np.argsort(y.sum(axis=0), kind="stable")
    ranked = y[:, rarest_first] > 0
    return np.where(ranked.any(axis=1), rarest_first[ranked.argmax(axis=1)] + 1, 0).astype(np.int64)


def score_samples(outputs: np.ndarray, inputs: np.ndarray | None, y: np.ndarray) -> SampleScores:
    """Return the numbers of labels that are predicted correctly, predicted wrongly and missed, (n, 3)."""
    predicted, labelled = outputs >= 0, y > 0
    counts = (predicted & labelled, predicted & ~labelled, ~predicted & labelled)
    return SampleScores("multi_label", np.stack([each.sum(axis=1) for each in counts], axis=1).astype(np.float64))


def accuracy(scores: SampleScores) -> float:
    """Return the F1."""
    return float(_f1(scores.values, np.ones((1, len(scores))))[0])


def drop(reference: SampleScores, scores: SampleScores, confidence: float) -> Drop:
    """Return the drop, estimated by a bootstrap.

    A sample is lost if it has more wrong or missed labels than in the reference's answers.
    """
    wrong = [each.values[:, 1:].sum(axis=1) for each in (reference, scores)]
    return bootstrap_drop(
        reference.values, scores.values, _f1, np.sign(wrong[1] - wrong[0]), confidence, at_most_one=AT_MOST_ONE
    )


def same_answers(reference: np.ndarray, outputs: np.ndarray, inputs: np.ndarray | None) -> np.ndarray:
    """Return which samples have the same predicted labels in both outputs."""
    return np.asarray(((reference >= 0) == (outputs >= 0)).all(axis=1))


def constant_answer(y: np.ndarray) -> tuple[float, str]:
    """Return the accuracy of predicting all labels."""
    return accuracy(score_samples(np.ones(y.shape), None, y)), "always predicting every label"


def answers(outputs: np.ndarray, inputs: np.ndarray | None) -> np.ndarray:
    """Return which labels are predicted, (n, labels) bool."""
    return np.asarray(outputs >= 0)


def is_correct(answers: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return for which samples every label is predicted correctly."""
    return np.asarray((answers == (y > 0)).all(axis=1))


def groups(answers: np.ndarray, y: np.ndarray, names: Sequence[str]) -> list[Group]:
    """Return the labels, each with its F1."""
    labelled = y > 0
    counts = zip(
        names, labelled.sum(axis=0), (answers & labelled).sum(axis=0), (answers & ~labelled).sum(axis=0), strict=True
    )
    return [
        Group(name, int(n), 2 * int(hit) / int(n + hit + wrong) if n + hit + wrong else None, int(hit), int(wrong))
        for name, n, hit, wrong in counts
    ]


def describe_answers(answers: np.ndarray, y: np.ndarray, names: Sequence[str]) -> list[str]:
    """Return the names of each sample's labels."""
    return [", ".join(names[int(place)] for place in np.flatnonzero(answer)) or "none" for answer in answers]


def describe_labels(y: np.ndarray, names: Sequence[str]) -> list[str]:
    """Return the names of each sample's labels."""
    return describe_answers(y > 0, y, names)


def _f1(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the F1 (draws,) of sample scores with weights (draws, n); 1 if there is no label and none is predicted."""
    right, wrong, missed = (weights @ values).T
    denominator = 2 * right + wrong + missed
    return np.where(denominator > 0, 2 * right / np.maximum(denominator, 1e-12), 1.0)
