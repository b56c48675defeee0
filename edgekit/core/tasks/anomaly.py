"""Anomaly detection by a network that has only seen normal samples.

A network that reconstructs its input scores a sample by the mean squared error of the reconstruction. A network that
returns a map of distances instead, (n, 1, rows, columns), scores it by the largest of them. Accuracy is the area under
the receiver operating characteristic: how often an anomaly scores higher than a normal sample, where a tie counts half.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgekit.core.errors import DataError
from edgekit.core.tasks import Group, SampleScores
from edgekit.core.tasks.accuracy_drop import Drop, bootstrap_drop, bootstrap_interval

METRIC = "AUC"
METRIC_TEXT = "accuracy is the AUC: how often an anomaly scores higher than a normal sample (50 %: by chance)"
OUTPUTS_NAME = "kinds of samples"
AT_MOST_ONE = True
RECONSTRUCTS = True
NEEDS_SHAPE = False
GROUP, SCORE, SCORE_RISES = "kind of sample", "share classified correctly", True
CORRECT_WHEN = "an anomaly scores above the threshold that 1 % of the normal samples exceed, a normal sample does not"
FALSE_ALARMS = 0.01
"""Rates are reported at the threshold that this share of the normal samples exceeds."""
NAMES = ("normal", "anomaly")
NORMAL_CLASSES = ("normal", "good")
"""Possible names of the class of normal samples; all other classes are anomalies."""
CHANCE = 0.5
"""Accuracy if all samples are of one kind, so that there is nothing to distinguish."""
NEAR = 0.5
"""Two scores count as equal if they differ by at most this share of the standard deviation of the reference's scores.
"""


def default_names(y: np.ndarray) -> tuple[str, ...]:
    """Return the names of the two kinds of samples: 0 is normal, 1 is an anomaly."""
    return NAMES


def normalize_labels(name: str, y: np.ndarray, names: tuple[str, ...]) -> np.ndarray:
    """Return (n,) int64, 0 for normal samples and 1 for anomalies. Exactly one class must be called normal or good."""
    if y.ndim != 1 or y.dtype.kind not in "iub":
        raise DataError(
            f"{name}: labels are {y.dtype} of shape {y.shape}; give each sample a whole number: 0 normal, 1 anomaly"
        )
    normal = [index for index, title in enumerate(names) if title.lower() in NORMAL_CLASSES]
    if len(normal) != 1:
        raise DataError(
            f"classes: got {', '.join(names)}; exactly one class must be called normal (or good), "
            "and all others are anomalies"
        )
    if (y < 0).any() or (y >= len(names)).any():
        raise DataError(f"{name}: labels from {y.min()} to {y.max()}, and {len(names)} classes; number them from 0")
    return (y != normal[0]).astype(np.int64)


def check_split(name: str, y: np.ndarray, names: tuple[str, ...]) -> None:
    """Check that train and calibration have normal samples, and that the other splits have samples of both kinds."""
    normal, anomalies = int((y == 0).sum()), int((y == 1).sum())
    if not normal:
        raise DataError(f"{name}: no normal sample among {len(y)}; training and evaluation need normal samples, too")
    if name not in ("train", "calibration") and not anomalies:
        raise DataError(
            f"{name}: no anomaly among {len(y)} samples, so nothing can be evaluated; put more into train (they are "
            "moved to validation and test, those of one recording together), or some into that split"
        )


def strata(y: np.ndarray) -> np.ndarray:
    """Return the kind of each sample, which divisions into splits keep in proportion."""
    return y


def score_samples(outputs: np.ndarray, inputs: np.ndarray | None, y: np.ndarray) -> SampleScores:
    """Return the score and the label of each sample, (n, 2)."""
    assert inputs is not None
    return SampleScores("anomaly", np.stack([anomaly_scores(outputs, inputs), y.astype(np.float64)], axis=1))


def anomaly_scores(outputs: np.ndarray, inputs: np.ndarray) -> np.ndarray:
    """Return the score of each sample, (n,) float64: of a reconstruction the error, of a map of distances the largest.

    Both arrays are (n, …). A reconstruction has the shape of the inputs, and a map never has.
    """
    if outputs.shape[1:] != inputs.shape[1:]:
        return outputs.reshape(len(outputs), -1).max(axis=1).astype(np.float64)
    rows = [each.reshape(len(each), -1).astype(np.float64) for each in (outputs, inputs)]
    mean_errors: np.ndarray = np.square(rows[0] - rows[1]).mean(axis=1)
    return mean_errors


def accuracy(scores: SampleScores) -> float:
    """Return the area under the curve."""
    return float(_auc(scores.values, np.ones((1, len(scores))))[0])


def interval(scores: SampleScores, confidence: float) -> tuple[float, float]:
    """Return the bootstrap interval of the accuracy. Normal samples and anomalies are drawn separately."""
    return bootstrap_interval(scores.values, _auc, confidence, apart=scores.values[:, 1] > 0)


def drop(reference: SampleScores, scores: SampleScores, confidence: float) -> Drop:
    """Return the drop, estimated by a bootstrap that draws normal samples and anomalies separately.

    A sample is lost if its rank is worse than with the reference: more normal samples score higher than an anomaly, or
    more anomalies score lower than a normal sample.
    """
    before, after = rank_shares(reference), rank_shares(scores)
    worse = np.sign(np.round(before - after, 12))
    kinds = scores.values[:, 1] > 0
    return bootstrap_drop(
        reference.values, scores.values, _auc, worse, confidence, apart=kinds, at_most_one=AT_MOST_ONE
    )


def rank_shares(scores: SampleScores) -> np.ndarray:
    """Return, for each sample, the share of samples of the other kind that are ranked correctly relative to it, (n,).

    For an anomaly these are the normal samples with a lower score, for a normal sample the anomalies with a higher
    score. A tie counts half.
    """
    score, anomalous = scores.values[:, 0], scores.values[:, 1] > 0
    shares = np.zeros(len(score))
    for kind in (True, False):
        others = np.sort(score[anomalous != kind])
        below = np.searchsorted(others, score[anomalous == kind], "left")
        above = len(others) - np.searchsorted(others, score[anomalous == kind], "right")
        tied = len(others) - below - above
        shares[anomalous == kind] = ((below if kind else above) + tied / 2) / max(1, len(others))
    return shares


def same_answers(reference: np.ndarray, outputs: np.ndarray, inputs: np.ndarray | None) -> np.ndarray:
    """Return which scores differ by at most half of the standard deviation of the reference's scores."""
    assert inputs is not None
    before, after = anomaly_scores(reference, inputs), anomaly_scores(outputs, inputs)
    return np.asarray(np.abs(before - after) <= NEAR * before.std() + 1e-9)


def constant_answer(y: np.ndarray) -> tuple[float, str]:
    """Return the accuracy of a constant score."""
    return CHANCE, "always giving the same score"


def answers(outputs: np.ndarray, inputs: np.ndarray | None) -> np.ndarray:
    """Return the scores, (n,) float64, or the maps of distances, (n, rows, columns)."""
    assert inputs is not None
    return anomaly_scores(outputs, inputs) if outputs.shape[1:] == inputs.shape[1:] else outputs[:, 0]


def closeness(answers: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return how well each sample is ranked (`rank_shares`), from 0 to 1. Among equals, anomalies come first."""
    scores = np.stack([_scores(answers), y.astype(np.float64)], axis=1)
    return np.where(y > 0, 1.0, 0.999) * rank_shares(SampleScores("anomaly", scores))


def drawn_answers(answers: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return maps of distances as multiples of the threshold."""
    return answers / _threshold(_scores(answers), y)


def is_correct(answers: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return which samples are classified correctly."""
    return np.asarray(_is_anomaly(answers, y) == (y > 0))


def groups(answers: np.ndarray, y: np.ndarray, names: Sequence[str]) -> list[Group]:
    """Return two groups, the normal samples and the anomalies, each with the share that is classified correctly."""
    predicted, result = _is_anomaly(answers, y), []
    for kind, name in enumerate(NAMES):
        in_group = y == kind
        hits = int((predicted[in_group] == kind).sum())
        result.append(
            Group(
                name, int(in_group.sum()), hits / int(in_group.sum()), hits, int((predicted[~in_group] == kind).sum())
            )
        )
    return result


def describe_answers(answers: np.ndarray, y: np.ndarray, names: Sequence[str]) -> list[str]:
    """Return the predicted kinds."""
    return [NAMES[int(predicted)] for predicted in _is_anomaly(answers, y)]


def describe_labels(y: np.ndarray, names: Sequence[str]) -> list[str]:
    """Return the true kinds."""
    return [NAMES[int(label)] for label in y]


def _is_anomaly(answers: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return which samples a network classifies as anomalies. The threshold comes from its scores of normal samples."""
    scores = _scores(answers)
    return np.asarray(scores > _threshold(scores, y))


def _threshold(scores: np.ndarray, y: np.ndarray) -> float:
    return float(np.quantile(scores[y == 0], 1 - FALSE_ALARMS))


def _scores(answers: np.ndarray) -> np.ndarray:
    """Return the score of each answer, (n,)."""
    return answers if answers.ndim == 1 else answers.max(axis=(1, 2))


def _auc(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the AUC (draws,) of sample scores with weights (draws, n): Mann-Whitney's U over the number of pairs."""
    order = np.argsort(values[:, 0], kind="stable")
    score, anomalous = values[order, 0], values[order, 1] > 0
    starts = np.flatnonzero(np.r_[True, score[1:] != score[:-1]])
    weighted = weights[:, order]
    positive = np.add.reduceat(weighted * anomalous, starts, axis=1)
    negative = np.add.reduceat(weighted * ~anomalous, starts, axis=1)
    below = np.cumsum(negative, axis=1) - negative
    pairs = positive.sum(axis=1) * negative.sum(axis=1)
    wins: np.ndarray = (positive * (below + negative / 2)).sum(axis=1)
    return np.where(pairs > 0, wins / np.maximum(pairs, 1), CHANCE)
