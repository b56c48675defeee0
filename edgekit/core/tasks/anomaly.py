"""What is out of the ordinary, by a network that learnt to reconstruct the ordinary.

A sample's score is the mean squared error of its reconstruction. Accuracy is the area under the receiver operating
characteristic: how often an anomaly scores higher than a normal sample. A tie counts half.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgekit.core.errors import DataError
from edgekit.core.tasks import Group, SampleScores
from edgekit.core.tasks.accuracy_drop import Drop, bootstrap_drop

METRIC = "AUC"
METRIC_TEXT = "accuracy is the AUC: how often an anomaly is reconstructed worse than a normal sample (50 %: by chance)"
OUTPUTS_NAME = "kinds of samples"
AT_MOST_ONE = True
RECONSTRUCTS = True
NEEDS_SHAPE = False
GROUP, SCORE, SCORE_RISES = "kind of sample", "share classified correctly", True
CORRECT_WHEN = "an anomaly scores above the threshold that 1 % of the normal samples exceed, a normal sample does not"
FALSE_ALARMS = 0.01
"""Share of the normal samples above the threshold at which rates are reported."""
NAMES = ("normal", "anomaly")
NORMAL_CLASSES = ("normal", "good")
"""What the class of normal samples may be called; all others are anomalies."""
CHANCE = 0.5
"""The accuracy of samples that are all of one kind: there is nothing to distinguish."""
NEAR = 0.5
"""Two scores are the same within this share of the reference's standard deviation."""


def default_names(y: np.ndarray) -> tuple[str, ...]:
    """0 is normal, 1 an anomaly."""
    return NAMES


def normalize_labels(name: str, y: np.ndarray, names: tuple[str, ...]) -> np.ndarray:
    """(n,) int64: 0 normal, 1 anomaly, whatever the classes are called; one of them must be normal."""
    if y.ndim != 1 or y.dtype.kind not in "iub":
        raise DataError(
            f"{name}: labels are {y.dtype} of shape {y.shape}; give each sample a whole number: 0 normal, 1 anomaly"
        )
    normal = [index for index, title in enumerate(names) if title.lower() in NORMAL_CLASSES]
    if len(normal) != 1:
        raise DataError(
            f"classes: got {', '.join(names)}; of an anomaly detection exactly one is called normal (or good), "
            "and all others are anomalies"
        )
    if (y < 0).any() or (y >= len(names)).any():
        raise DataError(f"{name}: labels from {y.min()} to {y.max()}, and {len(names)} classes; number them from 0")
    return (y != normal[0]).astype(np.int64)


def check_split(name: str, y: np.ndarray, names: tuple[str, ...]) -> None:
    """Train and calibration are normal; the others have samples of both."""
    normal, anomalies = int((y == 0).sum()), int((y == 1).sum())
    if not normal:
        raise DataError(
            f"{name}: no normal sample among {len(y)}; a network is trained and evaluated with normal ones too"
        )
    if name not in ("train", "calibration") and not anomalies:
        raise DataError(
            f"{name}: no anomaly among {len(y)} samples, so nothing can be evaluated; put more into train (they are "
            "moved to validation and test, those of one recording together), or some into that split"
        )


def strata(y: np.ndarray) -> np.ndarray:
    """Normal or not."""
    return y


def score_samples(outputs: np.ndarray, inputs: np.ndarray | None, y: np.ndarray) -> SampleScores:
    """Score and label: (n, 2)."""
    assert inputs is not None
    return SampleScores("anomaly", np.stack([reconstruction_errors(outputs, inputs), y.astype(np.float64)], axis=1))


def reconstruction_errors(outputs: np.ndarray, inputs: np.ndarray) -> np.ndarray:
    """Mean squared error of each sample, (n,) float64, of (n, …) both."""
    rows = [each.reshape(len(each), -1).astype(np.float64) for each in (outputs, inputs)]
    found: np.ndarray = np.square(rows[0] - rows[1]).mean(axis=1)
    return found


def accuracy(marks: SampleScores) -> float:
    """AUC."""
    return float(_auc(marks.values, np.ones((1, len(marks))))[0])


def drop(reference: SampleScores, marks: SampleScores, confidence: float) -> Drop:
    """By the bootstrap, normal samples and anomalies drawn apart; `lost` are samples that more of the others pass."""
    before, after = rank_shares(reference), rank_shares(marks)
    fell = np.sign(np.round(before - after, 12))
    kinds = marks.values[:, 1] > 0
    return bootstrap_drop(reference.values, marks.values, _auc, fell, confidence, apart=kinds, at_most_one=AT_MOST_ONE)


def rank_shares(marks: SampleScores) -> np.ndarray:
    """Of each sample, the share of those of the other kind that stand on the right side of it, (n,); a tie is half."""
    score, anomalous = marks.values[:, 0], marks.values[:, 1] > 0
    found = np.zeros(len(score))
    for own in (True, False):
        others = np.sort(score[anomalous != own])
        below = np.searchsorted(others, score[anomalous == own], "left")
        above = len(others) - np.searchsorted(others, score[anomalous == own], "right")
        tied = len(others) - below - above
        found[anomalous == own] = ((below if own else above) + tied / 2) / max(1, len(others))
    return found


def same_answers(reference: np.ndarray, outputs: np.ndarray, inputs: np.ndarray | None) -> np.ndarray:
    """Where the scores differ by half of their standard deviation over these samples at most."""
    assert inputs is not None
    before, after = reconstruction_errors(reference, inputs), reconstruction_errors(outputs, inputs)
    return np.asarray(np.abs(before - after) <= NEAR * before.std() + 1e-9)


def constant_answer(y: np.ndarray) -> tuple[float, str]:
    """Of the same score."""
    return CHANCE, "always giving the same score"


def answers(outputs: np.ndarray, inputs: np.ndarray | None) -> np.ndarray:
    """(n,) float64: the scores."""
    assert inputs is not None
    return reconstruction_errors(outputs, inputs)


def is_correct(answers: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Where it is called what it is."""
    return np.asarray(_called(answers, y) == (y > 0))


def groups(answers: np.ndarray, y: np.ndarray, names: Sequence[str]) -> list[Group]:
    """Normal samples, whose rest are false alarms, and anomalies, whose rest are missed."""
    called, found = _called(answers, y), []
    for kind, name in enumerate(NAMES):
        own = y == kind
        hit = int((called[own] == kind).sum())
        found.append(Group(name, int(own.sum()), hit / int(own.sum()), hit, int((called[~own] == kind).sum())))
    return found


def describe_answers(answers: np.ndarray, y: np.ndarray, names: Sequence[str]) -> list[str]:
    """What it is called."""
    return [NAMES[int(called)] for called in _called(answers, y)]


def describe_labels(y: np.ndarray, names: Sequence[str]) -> list[str]:
    """What it is."""
    return [NAMES[int(label)] for label in y]


def _called(scores: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Which samples a network calls anomalies, by its own scores of the normal ones."""
    return np.asarray(scores > np.quantile(scores[y == 0], 1 - FALSE_ALARMS))


def _auc(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """AUC (draws,) of marks for weights (draws, n): Mann-Whitney's U over the number of pairs."""
    order = np.argsort(values[:, 0], kind="stable")
    score, anomalous = values[order, 0], values[order, 1] > 0
    starts = np.flatnonzero(np.r_[True, score[1:] != score[:-1]])
    weighed = weights[:, order]
    positive = np.add.reduceat(weighed * anomalous, starts, axis=1)
    negative = np.add.reduceat(weighed * ~anomalous, starts, axis=1)
    below = np.cumsum(negative, axis=1) - negative
    pairs = positive.sum(axis=1) * negative.sum(axis=1)
    passed: np.ndarray = (positive * (below + negative / 2)).sum(axis=1)
    return np.where(pairs > 0, passed / np.maximum(pairs, 1), CHANCE)
