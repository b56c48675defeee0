"""A stream held against the reference: windows of growing length, each tested as soon as it is full."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from edgekit.device.monitor import two_sample, windows
from edgekit.device.monitor.reference import Reference
from edgekit.device.monitor.windows import FIRST, LEVELS, Past, Window

ALARM = 1.0
"""Evidence from which on a finding is an alarm: by chance, a tenth of one in the promised number of samples."""
FAR_WORTH = 32
"""Independent samples that a longer window is worth, most of whose values are far outside of the reference."""
MIN_SAMPLES = 64
"""Samples from which on something is said."""
EARLY_SAMPLES, EARLY_WINDOWS = 512, 8
"""Samples, and windows of a length, until which nobody knows how long a stream's neighbours stay alike."""
OVERLAPS = 2
"""Windows that begin within the length of one: each overlaps with half of the one before."""


class LatestWindow(NamedTuple):
    """The last full window of a level: its samples, mean values, ranks, spreads of ranks, classes, and evidence.

    `evidence` is of the location and the spread of each statistic (2, statistics), `class_evidence` of each class.
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
    """Takes statistics, oldest first. `per` is in how many sound samples there may be one false alarm."""

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
        room = (high - low) * min(1.0, 0.4 + 20 / reference.samples) + 1e-6 * np.abs(self._middle) + 1e-9
        self._near = low - room, high + room
        self._expected = self._expectation()
        self._rows: list[np.ndarray] = []
        self._count = 0
        self._history: list[deque[Past]] = [deque(maxlen=windows.HISTORY) for _ in range(LEVELS)]
        self._before: list[Window | None] = [None] * LEVELS
        self._ended = [0] * LEVELS

    @property
    def tests(self) -> int:
        """How many there are of each window."""
        return 2 * len(self.reference.names) + len(self.labels)

    def take(self, values: np.ndarray, classes: np.ndarray | None = None) -> np.ndarray:
        """Statistics (n, statistics) and classes (n, classes), oldest first; their ranks are returned."""
        ranks = self.reference.ranks(values)
        off = (values - self._middle) / self._scale
        far = (values < self._near[0]) | (values > self._near[1])
        said = self._pooled(classes) if classes is not None else np.empty((len(values), 0))
        rows = np.concatenate([off / (1 + np.abs(off)), np.abs(2 * ranks - 1), said, ranks, values, far], axis=1)
        begun = 0
        while begun < len(rows):
            part = rows[begun : begun + FIRST - self._count]
            self._rows.append(part)
            begun, self._count = begun + len(part), self._count + len(part)
            if self._count == FIRST:
                whole = np.concatenate(self._rows)
                self._rows, self._count = [], 0
                self._push(windows.first_window(whole, 2 * values.shape[1] + said.shape[1], 2 * values.shape[1]))
        return ranks

    def _push(self, window: Window) -> None:
        """Windows of all lengths that end here; those that overlap are tested, and go no higher."""
        level = 0
        while True:
            self._test(level, window)
            before, self._before[level] = self._before[level], window
            self._ended[level] += 1
            if before is None or level + 1 == LEVELS:
                return
            window, level = windows.join_windows(before, window), level + 1
            if self._ended[level - 1] % 2:
                self._test(level, window)
                return

    def _test(self, level: int, window: Window) -> None:
        self.latest[level] = self.test(window, self._history[level])
        self._history[level].append(window.past)

    def test(self, window: Window, history: Sequence[Past] = ()) -> LatestWindow:
        """What a window says; `history` is of windows of this length before it."""
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
        said = two_sample.log10_p_of_share(classes, worth[-1:], self.shares, n)
        correction = np.log10(max(1, self.tests) * LEVELS * OVERLAPS * self.per / window.n)
        found, found_classes = (np.maximum(0, -each - correction) for each in (logs, said))
        return LatestWindow(window.n, values, ranks, spreads, classes, found, found_classes, worth)

    def _inflation(self, window: Window, history: Sequence[Past], classes: np.ndarray) -> np.ndarray:
        """That of each series, none below that of the classes: a class explains a part of each statistic."""
        found = windows.inflation(window, history)
        new = self._ended[0] * FIRST <= EARLY_SAMPLES or len(history) < EARLY_WINDOWS
        if new and window.n < EARLY_SAMPLES:  # what looks like a drift may be a run of a class, or a slow walk
            names = 2 * len(self.reference.names)
            past = np.array([each.means[names : names + len(classes)] for each in history] or [classes])
            apart = np.median(np.square(past - self.shares).sum(axis=1))
            apart /= max(1e-9, (self.shares * (1 - self.shares)).sum())
            found[-1] = max(found[-1], window.n * apart)
            found = np.maximum(found, found.max() if window.n >= MIN_SAMPLES else window.n)
        return np.maximum(found, found[-1]) if len(classes) else found

    def _pooled(self, classes: np.ndarray) -> np.ndarray:
        if len(self.places) == 0 or len(self.labels) == classes.shape[1]:
            return classes.astype(np.float64)
        kept = classes[:, self.places].astype(np.float64)
        return np.concatenate([kept, classes.sum(axis=1, keepdims=True) - kept.sum(axis=1, keepdims=True)], axis=1)

    def _expectation(self) -> np.ndarray:
        """(2, statistics): the means of ranks and of their spreads where nothing changed, ties considered."""
        n, quantiles = self.reference.samples, self.reference.quantiles
        ranks = self.reference.ranks(quantiles.T)
        weights = np.full(len(ranks), 1.0)
        weights[[0, -1]] = 0.5
        end = 0.5 / (n + 1)
        low = np.where(quantiles[:, 0] < quantiles[:, 1], end, ranks[0])
        high = np.where(quantiles[:, -1] > quantiles[:, -2], 1 - end, ranks[-1])
        inside = (n - 1) / (n + 1) / weights.sum()

        def mean(of: np.ndarray, first: np.ndarray, last: np.ndarray) -> np.ndarray:
            found: np.ndarray = weights @ of * inside + (first + last) / (n + 1)
            return found

        return np.stack(
            [mean(*each) for each in ((ranks, low, high), tuple(np.abs(2 * x - 1) for x in (ranks, low, high)))]
        )


MAX_CLASSES = 32
OTHER_CLASSES = "other classes"


def _tested_classes(reference: Reference) -> tuple[list[int], list[str]]:
    """Places and names of the classes that are tested each; what is over is one class."""
    classes = reference.classes or {}
    labels = list(classes)
    if len(labels) <= MAX_CLASSES:
        return list(range(len(labels))), labels
    places = sorted(sorted(range(len(labels)), key=lambda place: -classes[labels[place]])[: MAX_CLASSES - 1])
    return places, [*(labels[place] for place in places), OTHER_CLASSES]
