"""Estimate the accuracy drop of a network from two networks' answers to the same samples, with an upper bound.

The samples are a random draw, and another draw would give a different drop. What can be claimed about all samples is
only the upper bound of a one-sided confidence interval. If answers are either right or wrong, the interval is Tango's
score interval for the difference of two paired proportions (Tango 1998, Statistics in Medicine 17:891-908), which keeps
its confidence even if few or no answers differ. For other metrics it comes from a paired bootstrap (Efron 1979, Annals
of Statistics 7:1-26).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING

from edgekit.core.errors import ConfigError, DataError

if TYPE_CHECKING:
    import numpy as np

    Score = Callable[[np.ndarray, np.ndarray], np.ndarray]
    """Function that returns accuracies (draws,), as fractions, from sample scores (n, k) and weights (draws, n)."""

BOOTSTRAP_DRAWS, DRAWS_PER_BLOCK = 2000, 100
"""Number of bootstrap draws, and how many of them are in memory at a time."""


@dataclass(frozen=True)
class Drop:
    """The accuracy of a reference minus that of a network on the same samples, in percentage points.

    `drop_pp` is negative if the network is more accurate. `lost` is the number of samples that the reference answers
    correctly and the network does not, or that the network answers worse. `gained` is the number of samples that the
    network answers correctly and the reference does not, or that the network answers better. With the given
    `confidence`, the drop over all samples like these is at most `bound_pp`. `least_pp` is the smallest bound that this
    number of samples can show, which is reached if no sample is lost.
    """

    drop_pp: float
    bound_pp: float
    lost: int
    gained: int
    samples: int
    confidence: float
    least_pp: float = 0.0


def drop_of_answers(reference_right: np.ndarray, right: np.ndarray, confidence: float) -> Drop:
    """Return the drop for answers that are either right or wrong.

    Parameters
    ----------
    reference_right, right
        (n,) bool: whether each network answered each sample correctly.
    confidence
        Confidence of the upper bound, a fraction above 0.5.

    Raises
    ------
    DataError
        The numbers of samples differ.
    """
    if len(reference_right) != len(right):
        raise DataError(
            f"answers to {len(reference_right)} and to {len(right)} samples cannot be compared; "
            "answer the same samples with both networks"
        )
    lost, gained = int((reference_right & ~right).sum()), int((right & ~reference_right).sum())
    return drop_of_counts(lost, gained, len(right), confidence)


def drop_of_counts(lost: int, gained: int, samples: int, confidence: float) -> Drop:
    """Return the drop of `samples` answers, of which `lost` became wrong and `gained` became right.

    Raises
    ------
    ConfigError
        The confidence is not between 0.5 and 1.
    DataError
        There are no samples.

    Examples
    --------
    >>> drop = drop_of_counts(lost=3, gained=0, samples=359, confidence=0.95)
    >>> round(drop.drop_pp, 2), round(drop.bound_pp, 2)
    (0.84, 2.07)
    """
    if samples < 1:
        raise DataError(f"a drop needs samples, got {samples}; the data need a validation split")
    if not 0.5 < confidence < 1:
        raise ConfigError(f"accuracy_confidence: got {confidence:g}; use a fraction between 0.5 and 1, such as 0.95")
    z = NormalDist().inv_cdf(confidence)
    # six digits, because a logarithm may differ in its last bit between machines, but sealed records must not
    bound_pp, least_pp = (round(100 * _upper_bound(*counts, samples, z), 6) for counts in ((lost, gained), (0, 0)))
    return Drop(100 * (lost - gained) / samples, bound_pp, lost, gained, samples, confidence, least_pp)


def bootstrap_drop(
    reference: np.ndarray,
    values: np.ndarray,
    score: Score,
    worse: np.ndarray,
    confidence: float,
    *,
    apart: np.ndarray | None = None,
    at_most_one: bool = False,
) -> Drop:
    """Estimate the drop of a metric and its upper bound by a paired bootstrap.

    Each draw takes the same samples, with replacement, for both networks. The upper bound is the quantile of the drops
    at `confidence`.

    Parameters
    ----------
    reference, values
        Sample scores (n, k) of the reference and of the network.
    score
        Computes accuracies from sample scores and weights.
    worse
        (n,): above 0 for a sample that was lost, below 0 for one that was gained.
    confidence
        Confidence of the upper bound, a fraction above 0.5.
    apart
        (n,) bool: divides the samples into two kinds, which are drawn separately.
    at_most_one
        Whether each sample contributes 0 to 1 to the accuracy. If so, the upper bound exceeds the drop by at least
        Tango's bound for no lost samples. Without this the bootstrap would be overconfident if hardly any samples
        differ, because it knows nothing about samples that it has not seen.
    """
    import numpy as np

    lost, gained, samples = int((worse > 0).sum()), int((worse < 0).sum()), len(values)
    least_pp = drop_of_counts(0, 0, samples, confidence).bound_pp if at_most_one else 0.0
    all_once = np.ones((1, samples))
    drop_pp = 100 * float((score(reference, all_once) - score(values, all_once))[0])
    drops = np.concatenate([score(reference, drawn) - score(values, drawn) for drawn in _draws(samples, apart)])
    bound_pp = max(drop_pp + least_pp, 100 * float(np.quantile(drops, confidence)))
    return Drop(round(drop_pp, 6), round(bound_pp, 6), lost, gained, samples, confidence, least_pp)


def bootstrap_interval(
    values: np.ndarray, score: Score, confidence: float, *, apart: np.ndarray | None = None
) -> tuple[float, float]:
    """Return the two-sided percentile interval of a metric, as fractions.

    The arguments are those of `bootstrap_drop`. It is too narrow if few samples are ranked wrongly.
    """
    import numpy as np

    scores = np.concatenate([score(values, drawn) for drawn in _draws(len(values), apart)])
    low, high = np.quantile(scores, [(1 - confidence) / 2, (1 + confidence) / 2])
    return round(float(low), 6), round(float(high), 6)


def _draws(samples: int, apart: np.ndarray | None) -> Iterator[np.ndarray]:
    """Yield how often each sample is drawn, in blocks (DRAWS_PER_BLOCK, samples) float64.

    The random generator has a fixed seed, so the draws are the same in every call.
    """
    import numpy as np

    random = np.random.default_rng(0)
    kinds = [np.arange(samples)] if apart is None else [np.flatnonzero(apart), np.flatnonzero(~apart)]
    rows = np.arange(DRAWS_PER_BLOCK)[:, None] * samples
    for _ in range(BOOTSTRAP_DRAWS // DRAWS_PER_BLOCK):
        drawn = np.hstack([kind[random.integers(0, len(kind), (DRAWS_PER_BLOCK, len(kind)))] for kind in kinds])
        counts = np.bincount((rows + drawn).ravel(), minlength=DRAWS_PER_BLOCK * samples)
        yield counts.reshape(DRAWS_PER_BLOCK, samples).astype(np.float64)


def budget_violation(drop: Drop, allowed_pp: float) -> str | None:
    """Return the reason why the drop exceeds a budget of `allowed_pp`, or None if it does not."""
    if drop.bound_pp <= allowed_pp:
        return None
    confidence = f"{100 * drop.confidence:g} %"
    violation = (
        f"accuracy drop {drop.drop_pp:.2f} pp may be {drop.bound_pp:.2f} pp "
        f"({confidence} confidence, {drop.samples} samples), over {allowed_pp:g} pp"
    )
    return (
        violation if drop.least_pp <= allowed_pp else f"{violation}; {too_few_samples(drop.samples, drop.confidence)}"
    )


def can_meet(samples: int, confidence: float, allowed_pp: float) -> bool:
    """Return whether a network that answers every sample like the reference would meet a budget of `allowed_pp`."""
    return drop_of_counts(0, 0, samples, confidence).bound_pp <= allowed_pp


def too_few_samples(samples: int, confidence: float) -> str:
    """Return a message for the case that `can_meet` returns False: what the samples cannot show, and what to do."""
    least_pp = drop_of_counts(0, 0, samples, confidence).bound_pp
    return (
        f"{samples} samples cannot show less than {least_pp:.2f} pp, even if every answer is the same as the "
        "baseline's: raise budget.accuracy_drop_pp, lower budget.accuracy_confidence, or give more validation samples"
    )


def _upper_bound(lost: int, gained: int, samples: int, z: float) -> float:
    """Return the largest difference (a fraction) that the score test does not reject at `z`.

    It is searched by bisection to the last bit.
    """
    low, high = (lost - gained) / samples, 1.0
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if _score(lost, gained, samples, middle) < z else (low, middle)
    return high


def _score(lost: int, gained: int, samples: int, difference: float) -> float:
    """Return by how many standard errors the observed difference is below `difference` (Tango 1998, eq. 24 to 26)."""
    b = (2 * samples - lost + gained) * difference - lost - gained
    c = -gained * difference * (1 - difference)
    q = (math.sqrt(b * b - 8 * samples * c) - b) / (4 * samples)  # the most likely share gained, given `difference`
    variance = samples * (2 * q + difference * (1 - difference))
    return (samples * difference - lost + gained) / math.sqrt(variance) if variance > 0 else math.inf
