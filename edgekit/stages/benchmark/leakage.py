"""Leakage: a model trained elsewhere that knows validation is right there surely more often than on test.

By Fisher's exact test (Fisher 1935), one-sided: of all that both splits hold, how often would chance put at least so
many right answers into validation? It keeps its level for any number of samples. It serves accuracies that are the
share of right answers; R², F1 and AUC are no means over samples.
"""

from __future__ import annotations

import math

import numpy as np

from edgekit.core import tasks
from edgekit.core.schema.variants import MadeElsewhere, SeenValidation
from edgekit.core.tasks import Answered

LEVEL = 0.01
"""Of models that know neither split, so many are called to know validation, at most."""


def check_leakage(name: str, role: MadeElsewhere, validation: Answered, test: Answered) -> SeenValidation | None:
    """The row of metrics of what `name` answered of either split; None where accuracy is no share of right answers."""
    if not isinstance(validation, np.ndarray) or not isinstance(test, np.ndarray):
        return None
    p_value = by_chance(int(validation.sum()), len(validation), int(test.sum()), len(test))
    return {
        "name": name,
        "role": role,
        "accuracy_validation": tasks.accuracy(validation),
        "samples_validation": len(validation),
        "accuracy_test": tasks.accuracy(test),
        "samples_test": len(test),
        "p_value": p_value,
        "level": LEVEL,
        "known": p_value <= LEVEL,
    }


def by_chance(right: int, samples: int, other_right: int, other_samples: int) -> float:
    """Probability of `right` or more right answers of `samples`, were the right ones of both splits dealt at random."""
    both, total = right + other_right, samples + other_samples
    whole = _log_choose(total, both)
    most = min(samples, both)
    logs = (
        _log_choose(samples, mine) + _log_choose(other_samples, both - mine) - whole
        for mine in range(right, most + 1)
        if both - mine <= other_samples
    )
    return min(1.0, math.fsum(map(math.exp, logs)))


def _log_choose(all_of: int, some: int) -> float:
    return math.lgamma(all_of + 1) - math.lgamma(some + 1) - math.lgamma(all_of - some + 1)
