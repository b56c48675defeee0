"""Windows of a stream, each of twice as many samples as the one below, and how many independent samples they are worth.

Neighbours in a stream are alike: pictures of a video, windows of a sound. The mean of m of them then scatters as that
of fewer. Batch means tell how much: where b neighbours are independent, the variance of their mean is a b-th of the
variance (Conway 1963). The largest ratio over all b counts, so that a stream is never held to be richer than it looks.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

FIRST = 64
LEVELS = 9
"""Windows of 64, 128, … 16,384 samples."""
BATCHES = 16
"""Batch means that a window keeps; the coarsest variance is one of half as many."""


class Window(NamedTuple):
    """Sums of `n` samples, over `series` (m,): `squares[k]` is of means of 2^k neighbours about their mean.

    `batches` (16, m) are means of n / 16 neighbours each.
    """

    n: int
    sums: np.ndarray
    squares: list[np.ndarray]
    batches: np.ndarray

    @property
    def means(self) -> np.ndarray:
        """Of the series."""
        return self.sums / self.n


def first(series: np.ndarray) -> Window:
    """A window of samples (64, m)."""
    squares, batches = [], series
    while len(batches) > BATCHES:
        squares.append(_squares(batches))
        batches = _paired(batches)
    return Window(len(series), series.sum(axis=0), [*squares, _squares(batches)], batches)


def joined(one: Window, other: Window) -> Window:
    """A window of both, one behind the other."""
    apart = np.square(one.means - other.means)
    squares = []
    for power, (left, right) in enumerate(zip(one.squares, other.squares)):
        squares.append(left + right + apart * (one.n / 2**power) / 2)  # Chan, Golub and LeVeque 1979
    batches = _paired(np.concatenate([one.batches, other.batches]))
    return Window(one.n + other.n, one.sums + other.sums, [*squares, _squares(batches)], batches)


def inflation(window: Window, groups: np.ndarray) -> np.ndarray:
    """For each group of series (groups, m), by how much fewer samples its window is worth; from 1 to n."""
    squares = [*window.squares, _squares(_paired(window.batches))]
    single = groups @ squares[0] / (window.n - 1)
    largest = np.ones(len(groups))
    for power, each in enumerate(squares[1:], 1):
        count = window.n / 2**power
        ratio = 2**power * (groups @ each) / (count - 1) / np.maximum(single, 1e-300)
        largest = np.maximum(largest, ratio / (1 + SPARE * (2 / (count - 1)) ** 0.5))
    return np.where(single > 1e-14, np.minimum(largest, window.n), window.n)


SPARE = 0.5
"""Standard deviations of a ratio that chance alone explains, and that are no sign of likeness."""


def _squares(values: np.ndarray) -> np.ndarray:
    return np.square(values - values.mean(axis=0)).sum(axis=0)


def _paired(values: np.ndarray) -> np.ndarray:
    return (values[0::2] + values[1::2]) / 2
