"""Windows of a stream, each of twice as many samples as the one below, and how many independent samples they are worth.

Neighbours in a stream are alike: pictures of a video, windows of a sound. The mean of m of them then scatters as that
of fewer. Batch means tell how much: where b neighbours are independent, the variance of their mean is a b-th of the
variance (Conway, Management Science 1963). Where the ratio still grows with b, it is taken to grow on to the whole
window. Windows before this one tell of what changes more slowly: the median of the steps between their means, each in
the variance of its two windows, so that neither a drift's onset nor what it narrows looks like slowness. The largest
ratio counts, and a part of the largest of any series counts for all: what moves one statistic mostly moves others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

FIRST = 32
LEVELS = 10
"""Windows of 32, 64, … 16,384 samples."""
BATCHES = 16
"""Batch means that a window keeps; the coarsest variance is one of half as many."""
HISTORY, LEAST = 32, 3
"""Windows of each length that are remembered, at most, and from which number on they tell something."""
LAGS = (1, 2, 4, 8)
SPARE, SPARE_HISTORY = 0.5, 2.0
"""What chance alone explains: standard deviations of a ratio of variances, and a ratio of the median of steps."""
SHARED = 8.0
"""So much, over the root of how many windows there are, chance alone adds to the largest median of all series."""
STILL = 1e-14
"""A variance that is none."""
MEDIAN = 0.455
"""Of a squared normal variable."""


class Window(NamedTuple):
    """Sums of `n` samples over all columns; `squares[k]` (alone + 1,) are of means of 2^k neighbours about their mean.

    `batches` (16, m) are means of n / 16 neighbours each, of the first m columns. The first `alone` of these are each
    for itself, the others make one series together.
    """

    n: int
    sums: np.ndarray
    squares: list[np.ndarray]
    batches: np.ndarray
    alone: int

    @property
    def means(self) -> np.ndarray:
        """Of all columns."""
        return self.sums / self.n

    @property
    def past(self) -> Past:
        """What is remembered of it."""
        return Past(self.means, self.squares[0] / (self.n - 1))


class Past(NamedTuple):
    """Means of a window, of all columns, and the variances of its samples (alone + 1,)."""

    means: np.ndarray
    variances: np.ndarray


def first(rows: np.ndarray, series: int, alone: int) -> Window:
    """A window of samples (32, columns), the first `series` of which are looked at for likeness."""
    squares, batches = [], rows[:, :series]
    while len(batches) > BATCHES:
        squares.append(_squares(batches, alone))
        batches = _paired(batches)
    return Window(len(rows), rows.sum(axis=0), [*squares, _squares(batches, alone)], batches, alone)


def joined(one: Window, other: Window) -> Window:
    """A window of both, one behind the other (Chan, Golub and LeVeque 1979)."""
    series, alone = one.batches.shape[1], one.alone
    apart = _together(np.square((one.means - other.means)[:series]), alone)
    pairs = enumerate(zip(one.squares, other.squares))
    squares = [left + right + apart * (one.n / 2 ** (power + 1)) for power, (left, right) in pairs]
    batches = _paired(np.concatenate([one.batches, other.batches]))
    return Window(one.n + other.n, one.sums + other.sums, [*squares, _squares(batches, alone)], batches, alone)


def inflation(window: Window, history: Sequence[Past]) -> np.ndarray:
    """By how much fewer samples the window is worth, for each series (alone + 1,); from 1 to n.

    `history` is of windows of this length before this one, oldest first. A series that stands still counts as the one
    whose neighbours are most alike.
    """
    squares = np.stack([*window.squares, _squares(_paired(window.batches), window.alone)])
    sizes = 2.0 ** np.arange(len(squares))[:, None]
    counts = window.n / sizes
    variances = squares / (counts - 1)
    known = np.maximum(variances[0], STILL)
    ratios = sizes * variances / known / (1 + SPARE * (2 / (counts - 1)) ** 0.5)
    largest = np.maximum(1, ratios.max(axis=0))
    grows = ratios[-1].clip(1, window.n) ** (1 + np.log(counts[-1]) / np.log(sizes[-1]))
    largest = np.maximum(largest, grows)
    if len(history) >= LEAST:
        learnt = np.ones(window.alone + 1)
        means, known = (np.stack(each) for each in zip(*history, window.past))
        for lag in LAGS[: len(means).bit_length() - 2]:
            steps = np.square(means[lag:] - means[:-lag])[:, : window.batches.shape[1]]
            alone = np.concatenate([steps[:, : window.alone], steps[:, window.alone :].sum(axis=1)[:, None]], axis=1)
            alone /= np.maximum((known[lag:] + known[:-lag]) / 2, STILL)
            alone.sort(axis=0)
            median = alone[len(alone) // 2] / (2 * MEDIAN)
            learnt = np.maximum(learnt, median * window.n / SPARE_HISTORY)
        largest = np.maximum(largest, np.maximum(learnt, learnt.max() / (1 + SHARED / len(means) ** 0.5)))
    varies = variances[0] > STILL
    most = largest[varies].max() if varies.any() else window.n  # what stands still tells nothing: the others do
    found: np.ndarray = np.minimum(np.where(varies, largest, np.maximum(largest, most)), window.n)
    return found


def _squares(values: np.ndarray, alone: int) -> np.ndarray:
    return _together(np.square(values - values.mean(axis=0)).sum(axis=0), alone)


def _together(values: np.ndarray, alone: int) -> np.ndarray:
    return np.append(values[:alone], values[alone:].sum())


def _paired(values: np.ndarray) -> np.ndarray:
    return (values[0::2] + values[1::2]) / 2
