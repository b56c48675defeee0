"""Stream windows of doubling length, and how many independent samples each is worth.

Neighbouring samples of a stream are correlated, as the pictures of a video are, so the mean of m of them varies as
much as the mean of fewer independent ones. How many fewer is estimated by batch means: if samples were independent,
the mean of b of them would have 1/b of their variance (Conway, Management Science 1963), so the ratio
b · Var(batch mean) / Var(sample) would be 1. The more the samples are correlated, the larger it is. If it still grows
with b, its growth is extrapolated to the whole window.

Earlier windows reveal slower changes, which are measured by the median squared step between the means of consecutive
windows, divided by the average variance of the two, so that neither the onset of a drift nor a drop in variance counts
as correlation. Each series, which is a statistic or all classes together, uses its largest ratio. Part of the largest
ratio from the history applies to all series, because statistics tend to move together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

FIRST = 32
LEVELS = 10
"""Windows of 32, 64, … 16,384 samples."""
BATCHES = 16
"""How many batch means are kept of a window. The variance of the longest batches uses half as many."""
HISTORY, LEAST = 32, 3
"""At most `HISTORY` windows of each length are remembered. With fewer than `LEAST`, the history is not used."""
LAGS = (1, 2, 4, 8)
SPARE, SPARE_HISTORY = 0.5, 2.0
"""Allowances for chance.

A ratio of variances is divided by 1 plus `SPARE` times its standard deviation; a ratio from the history is divided by
`SPARE_HISTORY`.
"""
SHARED = 8.0
"""The largest ratio from the history is divided by 1 + `SHARED` / √(number of windows) before it applies to all series.

The reason is that the largest of many is high by chance.
"""
STILL = 1e-14
"""Variances up to this count as zero."""
MEDIAN = 0.455
"""Median of a squared standard normal variable."""


class Window(NamedTuple):
    """A window of `n` samples, with the sums of all columns.

    `squares[k]` (alone + 1,): for each series, the sum of squared deviations of the means of 2^k neighbouring samples
    from the window's mean.

    `batches` (16, m): means of n / 16 neighbours, for the first m columns. Each of the first `alone` columns is a
    series of its own; the columns from there to m together form one more.
    """

    n: int
    sums: np.ndarray
    squares: list[np.ndarray]
    batches: np.ndarray
    alone: int

    @property
    def means(self) -> np.ndarray:
        """Means of all columns."""
        return self.sums / self.n

    @property
    def past(self) -> Past:
        """The part of this window that later windows need."""
        return Past(self.means, self.squares[0] / (self.n - 1))


class Past(NamedTuple):
    """The means of all columns of a window, and the variances of its samples in each series, (alone + 1,)."""

    means: np.ndarray
    variances: np.ndarray


def first_window(rows: np.ndarray, examined: int, alone: int) -> Window:
    """Return a window of samples (32, columns). The first `examined` columns are examined for correlation."""
    squares, batches = [], rows[:, :examined]
    while len(batches) > BATCHES:
        squares.append(_squares(batches, alone))
        batches = _pair_means(batches)
    return Window(len(rows), rows.sum(axis=0), [*squares, _squares(batches, alone)], batches, alone)


def join_windows(one: Window, other: Window) -> Window:
    """Join two consecutive windows (Chan, Golub and LeVeque 1979)."""
    examined, alone = one.batches.shape[1], one.alone
    apart = _together(np.square((one.means - other.means)[:examined]), alone)
    pairs = enumerate(zip(one.squares, other.squares))
    squares = [left + right + apart * (one.n / 2 ** (power + 1)) for power, (left, right) in pairs]
    batches = _pair_means(np.concatenate([one.batches, other.batches]))
    return Window(one.n + other.n, one.sums + other.sums, [*squares, _squares(batches, alone)], batches, alone)


def inflation(window: Window, history: Sequence[Past]) -> np.ndarray:
    """Return, for each series (alone + 1,), n divided by the number of independent samples that the window is worth.

    The factors are from 1 to n. `history` holds earlier windows of this length, oldest first. A constant series gets
    the factor of the most correlated one.
    """
    squares = np.stack([*window.squares, _squares(_pair_means(window.batches), window.alone)])
    sizes = 2.0 ** np.arange(len(squares))[:, None]
    counts = window.n / sizes
    variances = squares / (counts - 1)
    known_variances = np.maximum(variances[0], STILL)
    ratios = sizes * variances / known_variances / (1 + SPARE * (2 / (counts - 1)) ** 0.5)
    largest = np.maximum(1, ratios.max(axis=0))
    grows = ratios[-1].clip(1, window.n) ** (1 + np.log(counts[-1]) / np.log(sizes[-1]))
    largest = np.maximum(largest, grows)
    if len(history) >= LEAST:
        learnt = np.ones(window.alone + 1)
        means, known_variances = (np.stack(each) for each in zip(*history, window.past))
        for lag in LAGS[: len(means).bit_length() - 2]:
            steps = np.square(means[lag:] - means[:-lag])[:, : window.batches.shape[1]]
            joint = steps[:, window.alone :].sum(axis=1)[:, None]
            per_series = np.concatenate([steps[:, : window.alone], joint], axis=1)
            per_series /= np.maximum((known_variances[lag:] + known_variances[:-lag]) / 2, STILL)
            per_series.sort(axis=0)
            median = per_series[len(per_series) // 2] / (2 * MEDIAN)
            learnt = np.maximum(learnt, median * window.n / SPARE_HISTORY)
        largest = np.maximum(largest, np.maximum(learnt, learnt.max() / (1 + SHARED / len(means) ** 0.5)))
    varies = variances[0] > STILL
    # A constant series carries no information, so the others decide.
    most = largest[varies].max() if varies.any() else window.n
    factors: np.ndarray = np.minimum(np.where(varies, largest, np.maximum(largest, most)), window.n)
    return factors


def _squares(values: np.ndarray, alone: int) -> np.ndarray:
    return _together(np.square(values - values.mean(axis=0)).sum(axis=0), alone)


def _together(values: np.ndarray, alone: int) -> np.ndarray:
    return np.append(values[:alone], values[alone:].sum())


def _pair_means(values: np.ndarray) -> np.ndarray:
    return (values[0::2] + values[1::2]) / 2
