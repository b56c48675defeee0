"""The confidence interval of an accuracy: how much it could differ with other samples of the same kind."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

from edgekit.core import tasks
from edgekit.core.tasks import SampleResults, SampleScores

BOOTSTRAP_DRAWS = 400
CONFIDENCE = 0.95
"""The confidence of the interval of an accuracy that is only shown, and decides nothing."""


def has_quick_interval(scores: SampleResults) -> bool:
    """Whether the interval takes little time: if answers are right or wrong, or if the task has an interval itself.

    A bootstrap of a mean average precision takes too long to be made for every variant.
    """
    return not isinstance(scores, SampleScores) or hasattr(tasks.load_task(scores.task), "interval")


def accuracy_interval(scores: SampleResults, confidence: float = CONFIDENCE) -> list[float]:
    """Return the confidence interval of an accuracy, two fractions.

    It is Wilson's interval (1927) if each answer is either right or wrong, and a bootstrap interval otherwise: that of
    the task, if it has one.
    """
    if isinstance(scores, SampleScores) and (of_task := getattr(tasks.load_task(scores.task), "interval", None)):
        return list(of_task(scores, confidence))
    if not isinstance(scores, SampleScores):
        right, count = float(np.mean(scores)), len(scores)
        z = NormalDist().inv_cdf((1 + confidence) / 2)
        middle, half = (
            right + z * z / (2 * count),
            z * (right * (1 - right) / count + z * z / (4 * count * count)) ** 0.5,
        )
        bounds = [(middle - half) / (1 + z * z / count), (middle + half) / (1 + z * z / count)]
    else:
        random, count = np.random.default_rng(0), len(scores)
        samples = (
            SampleScores(scores.task, scores.values[random.integers(0, count, count)]) for _ in range(BOOTSTRAP_DRAWS)
        )
        bounds = list(
            np.quantile([tasks.accuracy(sample) for sample in samples], ((1 - confidence) / 2, (1 + confidence) / 2))
        )
    return [round(float(bound), 6) for bound in bounds]
