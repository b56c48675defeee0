"""A vector for each sample, near those of its like; accuracy is precision@1 among the samples of a split.

A sample is right where the nearest of the others, by the cosine of their vectors, has its label (recall@1 of metric
learning: Jégou, Douze, Schmid, TPAMI 2011; Oh Song et al., CVPR 2016). Labels are classes or identities, and a split
may have others than train. Of neighbours that are equally near the first one counts. A sample that is the only one of
its label has no neighbour that could be right: it stands among the neighbours of others, and is not asked itself.

Samples are not independent here: one may be the nearest of many. Tango's interval holds too seldom then (81 of 100 for
90 asked), so the bound also takes in the jackknife's error, which is never too small on average (Efron, Stein, Annals
of Statistics 1981).
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
"""Numbers in a vector, where `kwargs.dimensions` of a network says nothing else."""
NEAR = 0.98
"""Two vectors of a sample say the same where their cosine is at least that: 11 degrees, about 14 dB."""
BLOCK_ROWS = 1024
"""How many samples look for their neighbour at a time."""
BELOW_ANY_COSINE = -2.0
"""Less than any cosine."""
COSINE_DIGITS = 9
"""Of a cosine: the last bits of a sum differ from machine to machine, and equal vectors must tie on all."""


def default_names(y: np.ndarray) -> tuple[str, ...]:
    """Of labels (n,): "0", "1", … up to the highest."""
    return classification.default_names(y)


def normalize_labels(name: str, y: np.ndarray, names: tuple[str, ...]) -> np.ndarray:
    """(n,) int64, each the place of its label among the names."""
    return classification.normalize_labels(name, y, names)


def check_split(name: str, y: np.ndarray, names: tuple[str, ...]) -> None:
    """Two labels at least, and a label that two samples have; calibration needs neither."""
    if name == "calibration":
        return
    counts = np.bincount(y, minlength=len(names))
    if (counts > 0).sum() < 2:
        raise DataError(f"{name}: all {len(y)} samples have one label, so none can be told apart; add those of others")
    if counts.max() < 2:
        raise DataError(
            f"{name}: no two of {len(y)} samples have the same label, and a sample is right where the nearest other "
            "one has its label; give this split more samples of each, or a larger fraction"
        )


def strata(y: np.ndarray) -> np.ndarray:
    """The labels."""
    return y


def nearest_neighbour(outputs: np.ndarray) -> np.ndarray:
    """(n,) int32: the place of each sample's nearest other one, by the cosine of vectors (n, d)."""
    return two_nearest(outputs)[:, 0]


def two_nearest(outputs: np.ndarray) -> np.ndarray:
    """(n, 2) int32: the places of the nearest and of the second nearest; of two samples the second is itself."""
    vectors = unit_vectors(outputs)
    found = np.zeros((len(vectors), 2), np.int32)
    for start in range(0, len(vectors), BLOCK_ROWS):
        near = (vectors[start : start + BLOCK_ROWS] @ vectors.T).round(COSINE_DIGITS)
        rows = np.arange(len(near))
        near[rows, start + rows] = BELOW_ANY_COSINE
        for turn in (0, 1):
            chosen = near.argmax(axis=1)
            found[start : start + BLOCK_ROWS, turn] = chosen
            near[rows, chosen] = BELOW_ANY_COSINE - 1
    return found


def unit_vectors(outputs: np.ndarray) -> np.ndarray:
    """(n, d) float64 of length 1; a vector of zeros stays one."""
    rows = outputs.reshape(len(outputs), -1).astype(np.float64)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.where(lengths > 0, lengths, 1.0))


def score_samples(outputs: np.ndarray, inputs: np.ndarray | None, y: np.ndarray) -> SampleScores:
    """(n, 3): whether the nearest has the sample's label, and the second nearest, NaN where none has; the nearest."""
    near = two_nearest(outputs)
    marks = np.column_stack([is_correct(near[:, 0], y), is_correct(near[:, 1], y), near[:, 0]]).astype(np.float64)
    marks[_is_alone(y), :2] = np.nan
    return SampleScores("embedding", marks)


def accuracy(marks: SampleScores) -> float:
    """precision@1."""
    asked = ~np.isnan(marks.values[:, 0])
    return float(marks.values[asked, 0].mean()) if asked.any() else 0.0


def drop(reference: SampleScores, marks: SampleScores, confidence: float) -> Drop:
    """By Tango's interval, as of classes, or by the jackknife where that leaves more open."""
    asked = ~np.isnan(reference.values[:, 0])
    before, after = (each.values[asked, 0] > 0 for each in (reference, marks))
    found = drop_of_answers(before, after, confidence)
    weighs = _influences(reference) - _influences(marks)
    error = math.sqrt(len(weighs) * float(weighs.var())) / len(before)
    open_pp = found.drop_pp + 100 * NormalDist().inv_cdf(confidence) * error
    return replace(found, bound_pp=max(found.bound_pp, round(open_pp, 6)))


def same_answers(reference: np.ndarray, outputs: np.ndarray, inputs: np.ndarray | None) -> np.ndarray:
    """Where the cosine of the two vectors of a sample is at least `NEAR`; two vectors of zeros are the same."""
    before, after = unit_vectors(reference), unit_vectors(outputs)
    silent = ~before.any(axis=1) & ~after.any(axis=1)
    return np.asarray(((before * after).sum(axis=1) >= NEAR) | silent)


def constant_answer(y: np.ndarray) -> tuple[float, str]:
    """Of the most frequent label: a nearest sample that is always the same one has one."""
    return float(np.bincount(y).max() / len(y)), "always giving the same vector"


def answers(outputs: np.ndarray, inputs: np.ndarray | None) -> np.ndarray:
    """(n,) int32: which sample is the nearest."""
    return nearest_neighbour(outputs)


def is_correct(answers: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Where that one has the same label."""
    return np.asarray(y[answers] == y)


def groups(answers: np.ndarray, y: np.ndarray, names: Sequence[str]) -> list[Group]:
    """The labels of these samples, each with its share of samples whose nearest has it; None where one is alone."""
    found = classification.groups(y[answers], y, names)
    return [replace(each, score=None) if each.samples == 1 else each for each in found if each.samples]


def describe_answers(answers: np.ndarray, y: np.ndarray, names: Sequence[str]) -> list[str]:
    """The label of the nearest sample."""
    return classification.describe_answers(y[answers], y, names)


def describe_labels(y: np.ndarray, names: Sequence[str]) -> list[str]:
    """The label's name."""
    return classification.describe_labels(y, names)


def _influences(marks: SampleScores) -> np.ndarray:
    """(n,): how many right answers go with a sample: its own, and those that have it for their nearest."""
    right, second = np.nan_to_num(marks.values[:, :2]).T
    found: np.ndarray = right + np.bincount(marks.values[:, 2].astype(np.int64), right - second, len(right))
    return found


def _is_alone(y: np.ndarray) -> np.ndarray:
    """(n,) bool: no other sample has the label."""
    return np.asarray(np.bincount(y)[y] == 1)
