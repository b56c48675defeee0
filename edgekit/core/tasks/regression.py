"""Predict values, such as a temperature. Accuracy is R², averaged over the values.

R² = 1 − Σ (y − ŷ)² / Σ (y − mean y)². It is 1 if every prediction is exact, 0 if always predicting the mean would be as
good, and negative if that would be better.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from edgekit.core.errors import DataError
from edgekit.core.tasks import Group, SampleScores
from edgekit.core.tasks.accuracy_drop import Drop, bootstrap_drop
from edgekit.core.tasks.labels import label_columns, quote_names

METRIC = "R²"
METRIC_TEXT = "accuracy is R²: 100 % if every value is right, 0 % if their mean would be as good"
OUTPUTS_NAME = "values"
AT_MOST_ONE = False
RECONSTRUCTS = False
NEEDS_SHAPE = False
GROUP, SCORE, SCORE_RISES = "range of values", "mean absolute error", False
CORRECT_WHEN = "every value is within a tenth of its standard deviation"
RANGES = 5
"""For each value, the samples are divided into this number of equally large groups."""
STRATA = 10
LEAST_SPREAD, MOST_SPREAD, MOST_OFFSET = 0.1, 10.0, 10.0
"""Limits of each value in the train split.

Its standard deviation must lie between the first two numbers, and its mean at most `MOST_OFFSET` standard deviations
from 0.
"""
ROUNDING = 1e-9
NEAR = 0.1
"""Two answers count as the same if they differ by at most this share of the standard deviation of the reference's."""


def default_names(y: np.ndarray) -> tuple[str, ...]:
    """Return names for values (n,) or (n, values): "value", or "value 0", "value 1", …"""
    count = y.shape[1] if y.ndim == 2 else 1
    return ("value",) if count == 1 else tuple(f"value {index}" for index in range(count))


def normalize_labels(name: str, y: np.ndarray, names: tuple[str, ...]) -> np.ndarray:
    """Return (n, values) float32, finite."""
    table = label_columns(name, y, names, "a regression has floating-point values, (n,) or (n, values)").astype(
        np.float32
    )
    bad = np.argwhere(~np.isfinite(table))
    if len(bad):
        sample, column = bad[0]
        raise DataError(f"{name}: {names[column]} of sample {sample} is {table[sample, column]}; repair or remove it")
    return table


def check_split(name: str, y: np.ndarray, names: tuple[str, ...]) -> None:
    """Check that every value varies, and that its scale is suitable for training."""
    spread = y.std(axis=0, dtype=np.float64)
    flat = [names[index] for index in np.flatnonzero(spread == 0)]
    if flat:
        more = "" if name == "train" else ", or raise data.limit or the fraction that this split is given"
        raise DataError(
            f"{name}: {quote_names(flat)} is the same for all {len(y)} samples, so there is nothing to learn or "
            f"to evaluate; give samples in which it varies{more}"
        )
    if name != "train":
        return
    mean = y.mean(axis=0, dtype=np.float64)
    for index, title in enumerate(names):
        is_scaled = LEAST_SPREAD <= spread[index] <= MOST_SPREAD and abs(mean[index]) <= MOST_OFFSET * spread[index]
        if not is_scaled:
            raise DataError(
                f"{name}: {title} has mean {mean[index]:.4g} and standard deviation {spread[index]:.4g}; training "
                f"needs a deviation of {LEAST_SPREAD:g} to {MOST_SPREAD:g} and a mean within {MOST_OFFSET:g} "
                f"deviations of 0: give (y - {_rounded(mean[index], spread[index])}) / {spread[index]:.3g}, or y in "
                "another unit"
            )


def _rounded(mean: float, spread: float) -> str:
    """Round the mean to about a hundredth of the spread, so that little of it is left after it has been subtracted."""
    return f"{mean:.{max(0, 2 - math.floor(math.log10(spread)))}f}"


def strata(y: np.ndarray) -> np.ndarray:
    """Return the number of the tenth to which each sample belongs if the samples are sorted by their first value."""
    ranks = np.argsort(np.argsort(y[:, 0], kind="stable"), kind="stable")
    return (ranks * min(STRATA, len(y)) // max(1, len(y))).astype(np.int64)


def score_samples(outputs: np.ndarray, inputs: np.ndarray | None, y: np.ndarray) -> SampleScores:
    """Return the squared errors and the labels minus their mean, (n, 2 · values)."""
    labels = y.astype(np.float64)
    return SampleScores("regression", np.hstack([np.square(outputs - labels), labels - labels.mean(axis=0)]))


def accuracy(scores: SampleScores) -> float:
    """Return R²."""
    return float(_r2(scores.values, np.ones((1, len(scores))))[0])


def drop(reference: SampleScores, scores: SampleScores, confidence: float) -> Drop:
    """Return the drop, estimated by a bootstrap. A sample is lost if its error is larger than the reference's."""
    errors = [each.values[:, : each.values.shape[1] // 2].sum(axis=1) for each in (reference, scores)]
    worse = np.sign(errors[1] - errors[0])
    return bootstrap_drop(reference.values, scores.values, _r2, worse, confidence)


def same_answers(reference: np.ndarray, outputs: np.ndarray, inputs: np.ndarray | None) -> np.ndarray:
    """Return for which samples all values differ by at most a tenth of the reference's standard deviation."""
    spread = reference.std(axis=0)
    return np.asarray((np.abs(reference - outputs) <= NEAR * spread + 1e-6).all(axis=1))


def constant_answer(y: np.ndarray) -> tuple[float, str]:
    """Return the accuracy of always predicting the mean."""
    return 0.0, "always predicting the mean"


def answers(outputs: np.ndarray, inputs: np.ndarray | None) -> np.ndarray:
    """Return the predicted values, (n, values) float32."""
    return outputs.astype(np.float32)


def is_correct(answers: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return for which samples all values are within `NEAR` standard deviations of the labels."""
    return np.asarray((np.abs(answers - y) <= NEAR * y.std(axis=0) + 1e-6).all(axis=1))


def groups(answers: np.ndarray, y: np.ndarray, names: Sequence[str]) -> list[Group]:
    """Return, for each value, groups of samples from the lowest labels to the highest, with mean absolute errors."""
    result = []
    for column, title in enumerate(names):
        labels, errors = y[:, column], np.abs(answers[:, column].astype(np.float64) - y[:, column])
        edges = np.unique(np.quantile(labels, np.linspace(0, 1, RANGES + 1)))
        places = np.clip(np.searchsorted(edges, labels, "right") - 1, 0, max(0, len(edges) - 2))
        for place in np.unique(places):
            in_group, high = places == place, edges[min(place + 1, len(edges) - 1)]
            name = f"{title}: {edges[place]:.3g} to {high:.3g}"
            result.append(Group(name, int(in_group.sum()), round(float(errors[in_group].mean()), 6)))
    return result


def describe_answers(answers: np.ndarray, y: np.ndarray, names: Sequence[str]) -> list[str]:
    """Return the values as texts."""
    return [", ".join(f"{value:.3g}" for value in answer) for answer in answers]


def describe_labels(y: np.ndarray, names: Sequence[str]) -> list[str]:
    """Return the values as texts."""
    return describe_answers(y, y, names)


def _r2(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return R² (draws,) of sample scores with weights (draws, n)."""
    count = values.shape[1] // 2
    errors, y = values[:, :count], values[:, count:]
    total = weights.sum(axis=1, keepdims=True)
    squares = weights @ np.square(y)
    about_mean = squares - np.square(weights @ y) / total
    residual = weights @ errors
    varies = about_mean > ROUNDING * squares  # drawing one sample many times leaves a rounding error instead of zero
    with np.errstate(divide="ignore", invalid="ignore"):
        r2_of_values = np.where(varies, 1 - residual / about_mean, np.where(residual > 0, 0.0, 1.0))
    r2: np.ndarray = r2_of_values.mean(axis=1)
    return r2
