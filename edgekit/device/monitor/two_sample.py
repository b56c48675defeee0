"""Does a window of the stream look like the reference? Bounds on p-values, which hold for any number of samples.

Ranks in a reference of n samples are uniform as long as nothing changed. The mean of m ranks is then Mann and Whitney's
statistic (1947). Without ties its moment generating function is a product of ratios of hyperbolic sines, none above
that of a normal distribution. So Chernoff's bound holds with its variance, (1/m + 1/n) / 12, even far out.
"""

from __future__ import annotations

import numpy as np

SLACK = 0.005
"""Of a mean rank: what 129 quantiles do not tell, and what is too small to matter."""


def log10_p_of_mean_rank(deviations: np.ndarray, effective: np.ndarray, n: int, slack: np.ndarray) -> np.ndarray:
    """The logarithms of p-values of mean ranks that deviate so from what is expected; two-sided.

    `effective` is how many independent samples the window is worth, `n` the samples of the reference, `slack` what does
    not count of a deviation.
    """
    beyond = np.maximum(np.abs(deviations) - slack, 0)
    variance = (1 / np.maximum(effective, 1e-9) + 1 / n) / 12
    return np.minimum(0, np.log10(2) - beyond**2 / (2 * variance) / np.log(10))


def log10_p_of_share(here: np.ndarray, effective: np.ndarray, there: np.ndarray, n: int) -> np.ndarray:
    """The same for shares (classes,) of answers here and in the reference: Chernoff's bound for two samples.

    It is that of the share between both under which what was seen is the most probable.
    """
    between = (effective * here + n * there) / (effective + n)
    found = effective * _divergence(here, between) + n * _divergence(there, between)
    return np.minimum(0, np.log10(2) - found / np.log(10))


def _divergence(share: np.ndarray, of: np.ndarray) -> np.ndarray:
    """Kullback and Leibler's, of two Bernoulli distributions, in nats; both 0 or both 1 diverge by nothing."""

    def part(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.where(x > 0, x * np.log(np.maximum(x, 1e-300) / np.maximum(y, 1e-300)), 0.0)

    found: np.ndarray = np.maximum(part(share, of) + part(1 - share, 1 - of), 0)
    return found
