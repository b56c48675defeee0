"""Compare a stream with the reference in windows of growing length, each tested as soon as it is full."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from edgekit.device.monitor import two_sample, windows
from edgekit.device.monitor.reference import Reference
from edgekit.device.monitor.windows import FIRST, LEVELS, Past, Window

ALARM = 1.0
"""A finding with at least this evidence is an alarm.

Evidence is −log10 of a p-value that is corrected for all tests in `per` samples. At this evidence, 0.1 false alarms are
expected in `per` healthy samples, a tenth of the one false alarm that `Comparison` accepts.
"""
FAR_WORTH = 32
"""A window that is longer than this counts as at least this many independent samples, if most of its values are far
from the reference."""
MIN_SAMPLES = 64
"""Number of samples from which on there is a verdict."""
EARLY_SAMPLES, EARLY_WINDOWS = 512, 8
"""With fewer samples, or fewer windows of one length, it is not known well how long neighbouring samples stay
correlated."""
OVERLAPS = 2
"""How many windows begin within the length of one: two, because each overlaps half of the one before."""


class LatestWindow(NamedTuple):
    """The last full window of one length, with `n` samples: means of values, ranks, spreads (|2 rank − 1|) and classes.

    `evidence` (2, statistics) is for the location and the spread of each statistic, `class_evidence` for each class.
    `worth` is the number of independent samples that the window is worth in each of these series.
    """

    n: int
    values: np.ndarray
    ranks: np.ndarray
    spreads: np.ndarray
    classes: np.ndarray
    evidence: np.ndarray
    class_evidence: np.ndarray
    worth: np.ndarray


class Comparison:
    """Compares a stream of statistics with the reference. One false alarm is accepted in `per` healthy samples."""

    def __init__(self, reference: Reference, per: int) -> None:
        self.reference, self.per = reference, per
        self.latest: list[LatestWindow | None] = [None] * LEVELS
        self.places, self.labels = _tested_classes(reference)
        counts = np.array(list((reference.classes or {}).values()), np.float64)
        self.shares = self._pooled(counts[None])[0] / reference.samples
        quantiles = reference.quantiles
        self._middle = quantiles[:, quantiles.shape[1] // 2]
        low, high = quantiles[:, 0], quantiles[:, -1]
        quarter = quantiles.shape[1] // 4
        scale = (quantiles[:, -1 - quarter] - quantiles[:, quarter]) / 1.35
        scale = np.where(scale > 0, scale, (high - low) / 4)
        self._scale = np.where(scale > 0, scale, np.maximum(np.abs(self._middle), 1e-9))
        margin = (high - low) * min(1.0, 0.4 + 20 / reference.samples) + 1e-6 * np.abs(self._middle) + 1e-9
        self._near = low - margin, high + margin
        self._expected = self._expectation()
        self._rows: list[np.ndarray] = []
        self._count = 0
        self._history: list[deque[Past]] = [deque(maxlen=windows.HISTORY) for _ in range(LEVELS)]
        self._before: list[Window | None] = [None] * LEVELS
        self._ended = [0] * LEVELS

    @property
    def tests(self) -> int:
        """The number of tests per window."""
        return 2 * len(self.reference.names) + len(self.labels)

    def take(self, values: np.ndarray, classes: np.ndarray | None = None) -> np.ndarray:
        """Take statistics (n, statistics) and classes (n, classes), oldest first, and return their ranks."""
        ranks = self.reference.ranks(values)
        off = (values - self._middle) / self._scale
        far = (values < self._near[0]) | (values > self._near[1])
        class_counts = self._pooled(classes) if classes is not None else np.empty((len(values), 0))
        rows = np.concatenate(
            [off / (1 + np.abs(off)), np.abs(2 * ranks - 1), class_counts, ranks, values, far], axis=1
        )
        start = 0
        while start < len(rows):
            part = rows[start : start + FIRST - self._count]
            self._rows.append(part)
            start, self._count = start + len(part), self._count + len(part)
            if self._count == FIRST:
                samples = np.concatenate(self._rows)
                self._rows, self._count = [], 0
                self._push(
                    windows.first_window(samples, 2 * values.shape[1] + class_counts.shape[1], 2 * values.shape[1])
                )
        return ranks

    def _push(self, window: Window) -> None:
        """Test the windows of all lengths that end with this one.

        A longer window is joined from two consecutive ones. Every second one of a length overlaps its neighbours, so it
        is tested, but not joined further.
        """
        level = 0
        while True:
            self._test(level, window)
            previous, self._before[level] = self._before[level], window
            self._ended[level] += 1
            if previous is None or level + 1 == LEVELS:
                return
            window, level = windows.join_windows(previous, window), level + 1
            if self._ended[level - 1] % 2:
                self._test(level, window)
                return

    def _test(self, level: int, window: Window) -> None:
        self.latest[level] = self.test(window, self._history[level])
        self._history[level].append(window.past)

    def test(self, window: Window, history: Sequence[Past] = ()) -> LatestWindow:
        """Test a window. `history` holds earlier windows of this length."""
        names, labels, n = len(self.reference.names), len(self.labels), self.reference.samples
        _, spreads, classes, ranks, values, far = np.split(
            window.means, np.cumsum([names, names, labels, names, names])
        )
        worth = window.n / self._inflation(window, history, classes)
        worth[names:-1] = np.minimum(worth[:names], worth[names:-1])
        if window.n > FAR_WORTH:
            worth[:names] = np.where(far > 0.5, np.maximum(worth[:names], FAR_WORTH), worth[:names])
        off = np.stack([ranks - self._expected[0], spreads - self._expected[1]])
        slack = two_sample.SLACK + np.array([[0.0], [0.5 / n]])
        logs = two_sample.log10_p_of_mean_rank(off, worth[:-1].reshape(2, names), n, slack)
        class_logs = two_sample.log10_p_of_share(classes, worth[-1:], self.shares, n)
        correction = np.log10(max(1, self.tests) * LEVELS * OVERLAPS * self.per / window.n)
        evidence, class_evidence = (np.maximum(0, -each - correction) for each in (logs, class_logs))
        return LatestWindow(window.n, values, ranks, spreads, classes, evidence, class_evidence, worth)

    def _inflation(self, window: Window, history: Sequence[Past], classes: np.ndarray) -> np.ndarray:
        """Return the inflation of each series, as `windows.inflation` defines it.

        It is at least the inflation of the classes, because each statistic depends in part on the class.
        """
        inflation = windows.inflation(window, history)
        is_early = self._ended[0] * FIRST <= EARLY_SAMPLES or len(history) < EARLY_WINDOWS
        if is_early and window.n < EARLY_SAMPLES:  # what looks like drift may be a run of one class, or a slow change
            names = 2 * len(self.reference.names)
            past = np.array([each.means[names : names + len(classes)] for each in history] or [classes])
            apart = np.median(np.square(past - self.shares).sum(axis=1))
            apart /= max(1e-9, (self.shares * (1 - self.shares)).sum())
            inflation[-1] = max(inflation[-1], window.n * apart)
            inflation = np.maximum(inflation, inflation.max() if window.n >= MIN_SAMPLES else window.n)
        return np.maximum(inflation, inflation[-1]) if len(classes) else inflation

    def _pooled(self, classes: np.ndarray) -> np.ndarray:
        if len(self.places) == 0 or len(self.labels) == classes.shape[1]:
            return classes.astype(np.float64)
        tested = classes[:, self.places].astype(np.float64)
        return np.concatenate([tested, classes.sum(axis=1, keepdims=True) - tested.sum(axis=1, keepdims=True)], axis=1)

    def _expectation(self) -> np.ndarray:
        """Return the means of the ranks and of their spreads to expect if nothing has changed, (2, statistics).

        They differ from the means of a uniform distribution if some values of the reference are equal to each other.
        """
        n, quantiles = self.reference.samples, self.reference.quantiles
        ranks = self.reference.ranks(quantiles.T)
        weights = np.full(len(ranks), 1.0)
        weights[[0, -1]] = 0.5
        end = 0.5 / (n + 1)
        low = np.where(quantiles[:, 0] < quantiles[:, 1], end, ranks[0])
        high = np.where(quantiles[:, -1] > quantiles[:, -2], 1 - end, ranks[-1])
        inside = (n - 1) / (n + 1) / weights.sum()

        def mean(values: np.ndarray, first: np.ndarray, last: np.ndarray) -> np.ndarray:
            weighted_mean: np.ndarray = weights @ values * inside + (first + last) / (n + 1)
            return weighted_mean

        return np.stack(
            [mean(*each) for each in ((ranks, low, high), tuple(np.abs(2 * x - 1) for x in (ranks, low, high)))]
        )


MAX_CLASSES = 32
OTHER_CLASSES = "other classes"


def _tested_classes(reference: Reference) -> tuple[list[int], list[str]]:
    """Return the indices and names of the classes that are tested individually. The others are pooled into one."""
    classes = reference.classes or {}
    labels = list(classes)
    if len(labels) <= MAX_CLASSES:
        return list(range(len(labels))), labels
    indices = sorted(sorted(range(len(labels)), key=lambda index: -classes[labels[index]])[: MAX_CLASSES - 1])
    return indices, [*(labels[index] for index in indices), OTHER_CLASSES]
