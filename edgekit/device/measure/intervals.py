"""How certain a measured latency is: bootstrap intervals over the rounds of `bench.time_interleaved`.

Whole rounds are resampled, not single calls, because the calls of one round share its conditions (frequency,
neighbours, caches). Two variants are compared round by round, so that whatever slows down a whole round cancels out.
For the samples of `bench.timed_openings`, a round means all calls of one opening here, because these also share their
place in memory.

Each interval is the percentile interval of a median (Efron & Tibshirani 1993, chapter 13). If there are few rounds, its
bounds are moved outwards, because the plain interval would be too narrow (the expanded percentile interval of
Hesterberg 2015, "What Teachers Should Know about the Bootstrap", arXiv:1411.5279).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from edgekit.runner.errors import InputError

MIN_ROUNDS = 10
"""With fewer rounds, an interval that is wide enough would be as wide as the data."""
RESAMPLES = 10_000
SEED = 0
_AT_ONCE = 2_000_000
"""How many resampled rounds are held in memory at a time."""


@dataclass(frozen=True)
class RatioInterval:
    """How many times as long one variant takes as another, with the bounds of the confidence interval."""

    ratio: float
    low: float
    high: float


@dataclass(frozen=True)
class MedianInterval:
    """The median of the rounds' p50s, with the bounds of its confidence interval, in milliseconds."""

    p50_ms: float
    low_ms: float
    high_ms: float


def ratio_interval(samples_ms: np.ndarray, to_ms: np.ndarray, rounds: int, confidence: float) -> RatioInterval:
    """Return the p50 of `samples_ms` divided by that of `to_ms`: the ratio is taken in each round, then the median.

    Both are from one run of `bench.time_interleaved`, (rounds * calls,).
    """
    logs = np.log(round_p50s(samples_ms, rounds)) - np.log(round_p50s(to_ms, rounds))
    low, high = interval_bounds(logs, confidence)
    return RatioInterval(*(float(np.exp(value)) for value in (np.median(logs), low, high)))


def p50_interval(samples_ms: np.ndarray, rounds: int, confidence: float) -> MedianInterval:
    """Return the p50 of one variant, `samples_ms` (rounds * calls,), with its interval."""
    values_ms = round_p50s(samples_ms, rounds)
    return MedianInterval(float(np.median(values_ms)), *interval_bounds(values_ms, confidence))


def relative_latencies(samples_ms: Mapping[str, np.ndarray], rounds: int) -> dict[str, float]:
    """Return the latency of each variant relative to all variants.

    In each round, the variant's p50 is divided by the median of all p50s; the result is the median of these ratios.

    The variants then have the same order as by `ratio_interval`. p50s of the whole run would be less reliable: if the
    machine changes its pace half-way, some of them fall before the change and some after it.
    """
    logs = {name: np.log(round_p50s(values, rounds)) for name, values in samples_ms.items()}
    pace = np.median(list(logs.values()), axis=0)
    return {name: float(np.exp(np.median(values - pace))) for name, values in logs.items()}


def round_p50s(samples_ms: np.ndarray, rounds: int) -> np.ndarray:
    """Return the p50 of each round, (rounds,)."""
    if rounds < MIN_ROUNDS:
        raise InputError(f"rounds: got {rounds}; an interval needs at least {MIN_ROUNDS}")
    if len(samples_ms) == 0 or len(samples_ms) % rounds:
        raise InputError(f"samples_ms: got {len(samples_ms)}; give as many for each of the {rounds} rounds")
    p50s: np.ndarray = np.median(np.reshape(samples_ms, (rounds, -1)), axis=1)
    return np.maximum(p50s, 1e-9)  # never 0 (a clock may be too coarse), since a logarithm follows


def interval_bounds(
    values: np.ndarray, confidence: float, statistic: Callable[..., np.ndarray] = np.median
) -> tuple[float, float]:
    """Return the bounds of the interval of the median of `values` (rounds,), or of another `statistic` of them."""
    if not 0 < confidence < 1:
        raise InputError(f"confidence: got {confidence:g}; use a fraction between 0 and 1, such as 0.99")
    generator = np.random.default_rng(SEED)
    rounds = len(values)
    at_once = max(1, _AT_ONCE // rounds)
    estimates = [
        statistic(values[generator.integers(0, rounds, (min(at_once, RESAMPLES - done), rounds))], axis=1)
        for done in range(0, RESAMPLES, at_once)
    ]
    share = tail_probability(confidence, rounds)
    low, high = np.quantile(np.concatenate(estimates), (share, 1 - share))
    return float(low), float(high)


def tail_probability(confidence: float, rounds: int) -> float:
    """Return the share of the resampled values to cut off at either end.

    It is less than (1 - `confidence`) / 2, and the fewer rounds there are, the smaller it is.
    """
    expanded = (rounds / (rounds - 1)) ** 0.5 * _student(1 - (1 - confidence) / 2, rounds - 1)
    return NormalDist().cdf(-expanded)


def _student(share: float, freedom: int) -> float:
    """Return a quantile of Student's t (Abramowitz & Stegun 26.7.5): within 0.3 % from 9 degrees of freedom on."""
    z = NormalDist().inv_cdf(share)
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return sum(term / freedom**power for power, term in enumerate(terms))
