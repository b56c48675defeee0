"""How much accuracy a network may have lost: two networks' answers to the same samples, and a bound on the drop.

The samples are a draw, and another draw gives another drop. Of all samples one can only claim the upper end of a
one-sided interval. Where answers are right or wrong it is Tango's score interval for the difference of two paired
proportions (Tango 1998, Statistics in Medicine 17:891-908). It keeps its confidence where few answers differ, and where
none does. For other accuracies it is a paired bootstrap (Efron 1979, Annals of Statistics 7:1-26).
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
    """Accuracies (draws,), as fractions, of what samples say (n, k) for weights (draws, n)."""

BOOTSTRAP_DRAWS, DRAWS_PER_BLOCK = 2000, 100
"""Of the bootstrap, and how many of them are in memory at a time."""


@dataclass(frozen=True)
class Drop:
    """Accuracy below the reference's on the same samples, in percentage points; negative: above it.

    `lost` samples were right in the reference and are wrong now (or worse than they were), `gained` ones the other way
    round. With `confidence`, the drop over all samples like these is at most `bound_pp`. Less than `least_pp` cannot be
    shown by so many samples where none is lost.
    """

    drop_pp: float
    bound_pp: float
    lost: int
    gained: int
    samples: int
    confidence: float
    least_pp: float = 0.0


def drop_of_answers(reference_right: np.ndarray, right: np.ndarray, confidence: float) -> Drop:
    """Both (n,) bool, whether each sample was answered rightly; DataError where they cannot be of the same samples."""
    if len(reference_right) != len(right):
        raise DataError(
            f"answers to {len(reference_right)} and to {len(right)} samples cannot be compared; "
            "answer the same samples with both networks"
        )
    lost, gained = int((reference_right & ~right).sum()), int((right & ~reference_right).sum())
    return drop_of_counts(lost, gained, len(right), confidence)


def drop_of_counts(lost: int, gained: int, samples: int, confidence: float) -> Drop:
    """The same from counts; ConfigError for a confidence of even odds or less, or of certainty."""
    if samples < 1:
        raise DataError(f"a drop needs samples, got {samples}; give data a validation split")
    if not 0.5 < confidence < 1:
        raise ConfigError(f"accuracy_confidence: got {confidence:g}; use a fraction between 0.5 and 1, such as 0.95")
    z = NormalDist().inv_cdf(confidence)
    # six places: a logarithm may differ in its last bit from machine to machine, and what is sealed must not
    bound_pp, least_pp = (round(100 * _upper_end(*of, samples, z), 6) for of in ((lost, gained), (0, 0)))
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
    """The drop of an accuracy that `score` makes of what the samples say, (n, k) of both networks; by the bootstrap.

    The samples are drawn again, the same ones for both, and the quantile at `confidence` of the drops is the bound.
    worse: (n,), above 0 for a sample that lost, below 0 for one that gained. apart: (n,) bool, two kinds of samples
    that are drawn each for itself. at_most_one: a sample counts from 0 to 1, so that Tango's bound where none is lost
    is left open above the drop: the bootstrap knows nothing of samples it has not seen, and where hardly any differs it
    would be sure.
    """
    import numpy as np

    lost, gained, samples = int((worse > 0).sum()), int((worse < 0).sum()), len(values)
    least_pp = drop_of_counts(0, 0, samples, confidence).bound_pp if at_most_one else 0.0
    all_once = np.ones((1, samples))
    drop_pp = 100 * float((score(reference, all_once) - score(values, all_once))[0])
    drops = np.concatenate([score(reference, drawn) - score(values, drawn) for drawn in _draws(samples, apart)])
    bound_pp = max(drop_pp + least_pp, 100 * float(np.quantile(drops, confidence)))
    return Drop(round(drop_pp, 6), round(bound_pp, 6), lost, gained, samples, confidence, least_pp)


def _draws(samples: int, apart: np.ndarray | None) -> Iterator[np.ndarray]:
    """How often each sample is drawn, (AT_ONCE, samples) float64 at a time; always the same draws."""
    import numpy as np

    random = np.random.default_rng(0)
    kinds = [np.arange(samples)] if apart is None else [np.flatnonzero(apart), np.flatnonzero(~apart)]
    rows = np.arange(DRAWS_PER_BLOCK)[:, None] * samples
    for _ in range(BOOTSTRAP_DRAWS // DRAWS_PER_BLOCK):
        drawn = np.hstack([kind[random.integers(0, len(kind), (DRAWS_PER_BLOCK, len(kind)))] for kind in kinds])
        counts = np.bincount((rows + drawn).ravel(), minlength=DRAWS_PER_BLOCK * samples)
        yield counts.reshape(DRAWS_PER_BLOCK, samples).astype(np.float64)


def budget_violation(drop: Drop, allowed_pp: float) -> str | None:
    """Why the drop is not inside a budget of `allowed_pp`, in words; None where it is."""
    if drop.bound_pp <= allowed_pp:
        return None
    share = f"{100 * drop.confidence:g} %"
    said = (
        f"accuracy drop {drop.drop_pp:.2f} pp may be {drop.bound_pp:.2f} pp "
        f"({share} sure, {drop.samples} samples), over {allowed_pp:g} pp"
    )
    return said if drop.least_pp <= allowed_pp else f"{said}; {too_few_samples(drop.samples, drop.confidence)}"


def can_meet(samples: int, confidence: float, allowed_pp: float) -> bool:
    """Whether a network that answers every sample as the reference does is inside a budget of `allowed_pp`."""
    return drop_of_counts(0, 0, samples, confidence).bound_pp <= allowed_pp


def too_few_samples(samples: int, confidence: float) -> str:
    """What to do where `can_meet` says no."""
    least_pp = drop_of_counts(0, 0, samples, confidence).bound_pp
    return (
        f"{samples} samples, each answered as by the baseline, cannot show less than {least_pp:.2f} pp: "
        "raise budget.accuracy_drop_pp, lower budget.accuracy_confidence, or give more validation samples"
    )


def _upper_end(lost: int, gained: int, samples: int, z: float) -> float:
    """The largest difference that the score test does not reject at `z`, a fraction; by bisection, to the last bit."""
    low, high = (lost - gained) / samples, 1.0
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if _score(lost, gained, samples, middle) < z else (low, middle)
    return high


def _score(lost: int, gained: int, samples: int, difference: float) -> float:
    """Standard errors by which the observed difference lies below `difference` (Tango 1998, eq. 24 to 26)."""
    b = (2 * samples - lost + gained) * difference - lost - gained
    c = -gained * difference * (1 - difference)
    q = (math.sqrt(b * b - 8 * samples * c) - b) / (4 * samples)  # share gained, most likely under `difference`
    variance = samples * (2 * q + difference * (1 - difference))
    return (samples * difference - lost + gained) / math.sqrt(variance) if variance > 0 else math.inf
