"""How much accuracy a network may have lost: two networks' answers to the same samples, and a bound on the drop.

The samples are a draw, and another draw gives another drop; what can be claimed of all samples is the upper end of a
one-sided interval. It is Tango's score interval for the difference of two paired proportions (Tango 1998, Statistics
in Medicine 17:891-908), which keeps its confidence where few answers differ, and where none does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING

from edgekit.errors import ConfigError, DataError

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Drop:
    """Accuracy below the reference's on the same samples, in percentage points; negative: above it.

    `lost` samples were right in the reference and are wrong now, `gained` ones the other way round. With `confidence`,
    the drop over all samples like these is at most `bound_pp`.
    """

    drop_pp: float
    bound_pp: float
    lost: int
    gained: int
    samples: int
    confidence: float


def compare(reference_right: np.ndarray, right: np.ndarray, confidence: float) -> Drop:
    """Both (n,) bool, whether each sample was answered rightly; DataError where they cannot be of the same samples."""
    if len(reference_right) != len(right):
        raise DataError(
            f"answers to {len(reference_right)} and to {len(right)} samples cannot be compared; "
            "answer the same samples with both networks"
        )
    lost, gained = int((reference_right & ~right).sum()), int((right & ~reference_right).sum())
    return bounded(lost, gained, len(right), confidence)


def bounded(lost: int, gained: int, samples: int, confidence: float) -> Drop:
    """The same from counts; ConfigError for a confidence of even odds or less, or of certainty."""
    if samples < 1:
        raise DataError(f"a drop needs samples, got {samples}; give data a validation split")
    if not 0.5 < confidence < 1:
        raise ConfigError(f"accuracy_confidence: got {confidence:g}; use a fraction between 0.5 and 1, such as 0.95")
    z = NormalDist().inv_cdf(confidence)
    # six places: a logarithm may differ in its last bit from machine to machine, and what is sealed must not
    bound_pp = round(100 * _upper_end(lost, gained, samples, z), 6)
    return Drop(100 * (lost - gained) / samples, bound_pp, lost, gained, samples, confidence)


def refusal(drop: Drop, allowed_pp: float) -> str | None:
    """Why the drop is not inside a budget of `allowed_pp`, in words; None where it is."""
    if drop.bound_pp <= allowed_pp:
        return None
    share = f"{100 * drop.confidence:g} %"
    said = (
        f"accuracy drop {drop.drop_pp:.2f} pp may be {drop.bound_pp:.2f} pp "
        f"({share} sure, {drop.samples} samples), over {allowed_pp:g} pp"
    )
    number = drop.samples, drop.confidence
    return said if can_meet(*number, allowed_pp) else f"{said}; {too_few(*number)}"


def can_meet(samples: int, confidence: float, allowed_pp: float) -> bool:
    """Whether a network that answers every sample as the reference does is inside a budget of `allowed_pp`."""
    return bounded(0, 0, samples, confidence).bound_pp <= allowed_pp


def too_few(samples: int, confidence: float) -> str:
    """What to do where `can_meet` says no."""
    least_pp = bounded(0, 0, samples, confidence).bound_pp
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
