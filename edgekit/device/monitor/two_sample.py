"""Bounds on p-values for whether a window of the stream looks like the reference, valid for any number of samples.

As long as nothing has changed, ranks in a reference of n samples are uniform. The mean of m ranks is then Mann and
Whitney's statistic (1947). Without ties, its moment generating function is a product of ratios of hyperbolic sines, and
does not exceed that of a normal distribution with the same variance, (1/m + 1/n) / 12. Chernoff's bound for this normal
distribution therefore holds, even far out in the tails.
"""

from __future__ import annotations

import numpy as np

SLACK = 0.005
"""Deviations of a mean rank up to this size are ignored: 129 quantiles cannot resolve them, and they do not matter."""


def log10_p_of_mean_rank(deviations: np.ndarray, effective: np.ndarray, n: int, slack: np.ndarray) -> np.ndarray:
    """Return log10 of the two-sided p-values of mean ranks that deviate by `deviations` from their expectation.

    `effective` is the number of independent samples that the window is worth, `n` the number of samples in the
    reference, and `slack` the tolerated deviation.
    """
    beyond = np.maximum(np.abs(deviations) - slack, 0)
    variance = (1 / np.maximum(effective, 1e-9) + 1 / n) / 12
    return np.minimum(0, np.log10(2) - beyond**2 / (2 * variance) / np.log(10))


def log10_p_of_share(observed: np.ndarray, effective: np.ndarray, expected: np.ndarray, n: int) -> np.ndarray:
    """Return log10 of the p-values of class fractions in window and reference, by Chernoff's bound for two samples.

    The bound is taken at that fraction between the two under which the observations are most probable.
    """
    between = (effective * observed + n * expected) / (effective + n)
    divergence = effective * _divergence(observed, between) + n * _divergence(expected, between)
    return np.minimum(0, np.log10(2) - divergence / np.log(10))


def _divergence(share: np.ndarray, of: np.ndarray) -> np.ndarray:
    """Return the Kullback-Leibler divergence of two Bernoulli distributions in nats; 0 if both are 0 or both are 1."""

    def part(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.where(x > 0, x * np.log(np.maximum(x, 1e-300) / np.maximum(y, 1e-300)), 0.0)

    divergence: np.ndarray = np.maximum(part(share, of) + part(1 - share, 1 - of), 0)
    return divergence
