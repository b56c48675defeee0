"""Map each sample to a vector that is close to the vectors of similar samples.

Accuracy is precision@1 among the samples of a split: a sample counts as right if the nearest of the other samples, by
the cosine of their vectors, has the same label (recall@1 in metric learning: Jégou, Douze, Schmid, TPAMI 2011; Oh Song
et al., CVPR 2016). Labels are classes or identities, and a split may have other labels than train. If several
neighbours are equally near, the first counts. A sample that is the only one with its label cannot be right, so it is
not evaluated itself and only serves as a neighbour of others.

Samples are not independent here, because one sample may be the nearest neighbour of many. Tango's interval alone would
contain the true drop too rarely (81 of 100 times at a confidence of 90 %). The bound is therefore the larger of Tango's
and the jackknife's, whose standard error is never too small on average (Efron, Stein, Annals of Statistics 1981).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import NormalDist

import numpy as np

from edgekit.core.errors import DataError
from edgekit.core.tasks import Group, SampleScores, classification
from edgekit.core.tasks.accuracy_drop import Drop, drop_of_answers

METRIC = "precision@1"
METRIC_TEXT = "accuracy is precision@1: the share of samples whose nearest other sample, by cosine, has their label"
OUTPUTS_NAME = "labels"
AT_MOST_ONE = True
RECONSTRUCTS = False
NEEDS_SHAPE = False
GROUP, SCORE, SCORE_RISES = "label", "precision@1", True
CORRECT_WHEN = "the nearest other sample has their label"
DIMENSIONS = 64
"""The length of a vector, unless `kwargs.dimensions` of the network says otherwise."""
NEAR = 0.98
"""Two vectors of a sample count as the same if their cosine is at least this, which is an angle of 11 degrees."""
BLOCK_ROWS = 1024
"""Number of samples that are compared with all others at a time."""
BELOW_ANY_COSINE = -2.0
"""A value below any cosine. A pair of samples with this value is never the nearest."""
COSINE_DIGITS = 9
"""Cosines are rounded to this many digits, because the last bits of a sum differ between machines.

Equal vectors then count as equally near on every machine.
"""


def default_names(y: np.ndarray) -> tuple[str, ...]:
    """Return names for labels (n,): "0", "1", … up to the highest."""
    return classification.default_names(y)


def normalize_labels(name: str, y: np.ndarray, names: tuple[str, ...]) -> np.ndarray:
    """Return (n,) int64, each the index of its label in `names`."""
    return classification.normalize_labels(name, y, names)


def check_split(name: str, y: np.ndarray, names: tuple[str, ...]) -> None:
    """Check that the split has at least two labels, and a label with two samples. Calibration needs neither."""
    if name == "calibration":
        return
    counts = np.bincount(y, minlength=len(names))
    if (counts > 0).sum() < 2:
        raise DataError(
            f"{name}: all {len(y)} samples have one label, so nothing can be distinguished; add other labels"
        )
    if counts.max() < 2:
        raise DataError(
            f"{name}: no two of {len(y)} samples have the same label, but a sample counts as right only "
            f"if the nearest other one has its label; give this split more samples of each label, or a "
            f"larger fraction"
        )


def strata(y: np.ndarray) -> np.ndarray:
    """Return the labels, which divisions into splits keep in proportion."""
    return y


def nearest_neighbour(outputs: np.ndarray) -> np.ndarray:
    """Return (n,) int32: the index of each sample's nearest other sample, by the cosine of vectors (n, d)."""
    return two_nearest(outputs)[:, 0]


def two_nearest(outputs: np.ndarray) -> np.ndarray:
    """Return (n, 2) int32: the indices of the nearest and second nearest other sample.

    If there are only two samples, the second nearest is the sample itself.
    """
    vectors = unit_vectors(outputs)
    neighbours = np.zeros((len(vectors), 2), np.int32)
    for start in range(0, len(vectors), BLOCK_ROWS):
        cosines = (vectors[start : start + BLOCK_ROWS] @ vectors.T).round(COSINE_DIGITS)
        rows = np.arange(len(cosines))
        cosines[rows, start + rows] = BELOW_ANY_COSINE
        for rank in (0, 1):
            nearest = cosines.argmax(axis=1)
            neighbours[start : start + BLOCK_ROWS, rank] = nearest
            cosines[rows, nearest] = BELOW_ANY_COSINE - 1
    return neighbours


def unit_vectors(outputs: np.ndarray) -> np.ndarray:
    """Return (n, d) float64 vectors of length 1; a vector of zeros stays zero."""
    rows = outputs.reshape(len(outputs), -1).astype(np.float64)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.where(lengths > 0, lengths, 1.0))


def score_samples(outputs: np.ndarray, inputs: np.ndarray | None, y: np.ndarray) -> SampleScores:
    """Return (n, 3): whether the nearest other sample has the same label, whether the second nearest has it, and the
    index of the nearest.

    The first two columns are NaN for a sample that is the only one with its label.
    """
    neighbours = two_nearest(outputs)
    values = np.column_stack(
        [is_correct(neighbours[:, 0], y), is_correct(neighbours[:, 1], y), neighbours[:, 0]]
    ).astype(np.float64)
    values[_is_alone(y), :2] = np.nan
    return SampleScores("embedding", values)


def accuracy(scores: SampleScores) -> float:
    """Return precision@1."""
    evaluated = ~np.isnan(scores.values[:, 0])
    return float(scores.values[evaluated, 0].mean()) if evaluated.any() else 0.0


def drop(reference: SampleScores, scores: SampleScores, confidence: float) -> Drop:
    """Return the drop. Its bound is the larger of the jackknife's and of Tango's, which classification uses."""
    evaluated = ~np.isnan(reference.values[:, 0])
    before, after = (each.values[evaluated, 0] > 0 for each in (reference, scores))
    difference = drop_of_answers(before, after, confidence)
    influences = _influences(reference) - _influences(scores)
    error = math.sqrt(len(influences) * float(influences.var())) / len(before)
    jackknife_pp = difference.drop_pp + 100 * NormalDist().inv_cdf(confidence) * error
    return replace(difference, bound_pp=max(difference.bound_pp, round(jackknife_pp, 6)))


def same_answers(reference: np.ndarray, outputs: np.ndarray, inputs: np.ndarray | None) -> np.ndarray:
    """Return for which samples the cosine of both vectors is at least `NEAR`.

    Two vectors of zeros count as the same.
    """
    before, after = unit_vectors(reference), unit_vectors(outputs)
    both_zero = ~before.any(axis=1) & ~after.any(axis=1)
    return np.asarray(((before * after).sum(axis=1) >= NEAR) | both_zero)


def constant_answer(y: np.ndarray) -> tuple[float, str]:
    """Return the accuracy if the nearest sample is always the same one, with the most frequent label."""
    return float(np.bincount(y).max() / len(y)), "always giving the same vector"


def answers(outputs: np.ndarray, inputs: np.ndarray | None) -> np.ndarray:
    """Return the index of the nearest other sample for each sample, (n,) int32."""
    return nearest_neighbour(outputs)


def is_correct(answers: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return for which samples the nearest other sample has the same label."""
    return np.asarray(y[answers] == y)


def groups(answers: np.ndarray, y: np.ndarray, names: Sequence[str]) -> list[Group]:
    """Return the labels of these samples, each with its precision@1, which is None for a label with a single sample."""
    all_groups = classification.groups(y[answers], y, names)
    return [replace(group, score=None) if group.samples == 1 else group for group in all_groups if group.samples]


def describe_answers(answers: np.ndarray, y: np.ndarray, names: Sequence[str]) -> list[str]:
    """Return the label of each sample's nearest other sample."""
    return classification.describe_answers(y[answers], y, names)


def describe_labels(y: np.ndarray, names: Sequence[str]) -> list[str]:
    """Return the names of the labels."""
    return classification.describe_labels(y, names)


def _influences(scores: SampleScores) -> np.ndarray:
    """Return how many right answers each sample contributes, (n,).

    A sample contributes its own answer. For every sample whose nearest neighbour it is, it also contributes the
    difference between that sample's answer and the one that the second nearest neighbour would give.
    """
    right, second = np.nan_to_num(scores.values[:, :2]).T
    counts: np.ndarray = right + np.bincount(scores.values[:, 2].astype(np.int64), right - second, len(right))
    return counts


def _is_alone(y: np.ndarray) -> np.ndarray:
    """Return for which samples no other sample has the same label, (n,) bool."""
    return np.asarray(np.bincount(y)[y] == 1)
