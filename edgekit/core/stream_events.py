"""Compare predictions on a stream with its true events: detected events, and false alarms per hour.

Keyword spotting is evaluated by misses against false alarms per hour (Chen, Parada and Heigold 2014, ICASSP; Sainath
and Parada 2015, Interspeech). Here

- an event is a run of windows with one label other than `rest`, within one piece of a recording;
- an event is detected if its label is predicted within it, or within `tolerance` windows after it, because smoothing
  answers late. The tolerance ends where the next event with that label begins, since predictions there count for that
  event alone;
- a false alarm is a run of windows in which a label is predicted outside its own events and their tolerance. A false
  alarm that lasts counts again every `repeat` windows, as in WeKws's `compute_det.py`, because a device would act
  again. Otherwise a model that never falls silent would cause a single alarm;
- a wrong label within an event is a false alarm too, because a device would act on it;
- the hours are those outside all events and their tolerance, so wrong labels within events can only raise the rate.

The tolerance may extend into the next piece. Data sources return pieces with one label each, and a late prediction lies
in the following piece of the stream. If the tolerance ended with the piece, it would have no effect.

The upper bound of the rate of false alarms is the exact one for Poisson counts (Garwood 1936, Biometrika 28:437-442),
which assumes that alarms are independent.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class EventCounts:
    """The counts of a stream.

    `outside` is the number of windows outside events, and `alarmed` is the number of these with any alarm.
    `is_detected` (events,) bool says which events were detected, in order. Delays are in windows from an event's first
    window.
    """

    is_detected: np.ndarray
    false_alarms: int
    outside: int
    alarmed: int
    delays: tuple[int, ...]

    @property
    def events(self) -> int:
        """Number of true events in the stream."""
        return len(self.is_detected)

    @property
    def detected(self) -> int:
        """Number of detected events."""
        return int(self.is_detected.sum())


def count_events(
    predicted: np.ndarray, truth: np.ndarray, pieces: np.ndarray, rest: int, tolerance: int, repeat: int
) -> EventCounts:
    """Count detected events and false alarms.

    Parameters
    ----------
    predicted, truth, pieces
        Predicted label, true label and piece of a recording of each window in temporal order, each (n,) integers.
    rest
        The label that is not an event.
    tolerance
        Windows after an event in which it can still be detected, at least 0.
    repeat
        Windows after which a continuing false alarm counts again, at least 1.
    """
    n = len(truth)
    starts, ends = find_runs(truth != rest, truth, pieces)
    labels = truth[starts]
    outside, alarms = truth == rest, 0
    for label in np.union1d(labels, predicted[predicted != rest]):
        changes = np.zeros(n + 1, np.int64)  # +1 where its events begin, -1 where their tolerance ends
        np.add.at(changes, starts[labels == label], 1)
        np.add.at(changes, np.minimum(ends[labels == label] + tolerance, n), -1)
        is_expected = np.cumsum(changes[:-1]) > 0
        outside &= ~is_expected
        firsts, lasts = find_runs((predicted == label) & ~is_expected)
        alarms += int((-(-(lasts - firsts) // repeat)).sum())
    detections = [
        np.flatnonzero(predicted[start : min(end + tolerance, next_start)] == label)[:1]
        for start, end, label, next_start in zip(starts, ends, labels, _next_starts(starts, labels, n), strict=True)
    ]
    is_detected = np.array([len(first) > 0 for first in detections], bool)
    delays = tuple(int(first[0]) for first in detections if len(first))
    return EventCounts(is_detected, alarms, int(outside.sum()), int((outside & (predicted != rest)).sum()), delays)


def _next_starts(starts: np.ndarray, labels: np.ndarray, n: int) -> np.ndarray:
    """Return, for each event, the index at which the next event with the same label starts, or `n` if none follows."""
    next_starts = np.full(len(starts), n)
    for label in np.unique(labels):
        indices = np.flatnonzero(labels == label)
        next_starts[indices[:-1]] = starts[indices[1:]]
    return next_starts


def find_runs(mask: np.ndarray, *alike: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the start and end indices of the longest runs of True within which every array of `alike` is constant."""
    n = len(mask)
    breaks = np.zeros(n + 1, bool)
    breaks[[0, n]] = True
    for values in (mask, *alike):
        breaks[1:n] |= values[1:] != values[:-1]
    edges = np.flatnonzero(breaks)
    firsts, ends = edges[:-1], edges[1:]
    is_run = mask[firsts] if n else np.zeros(0, bool)
    return firsts[is_run], ends[is_run]


def poisson_upper_bound(alarms: int, confidence: float) -> float:
    """Return the upper bound of a Poisson mean for the given number of alarms and confidence (Garwood).

    The bound is half of the chi-squared quantile with 2 (alarms + 1) degrees of freedom: 3.0 for no alarm at 0.95.
    """
    low, high = 0.0, 10.0 + 2 * alarms + 10 * math.sqrt(alarms - math.log(1 - confidence))
    numbers = np.arange(alarms + 1)
    log_factorials = np.array([math.lgamma(k + 1) for k in range(alarms + 1)])
    while low < (middle := (low + high) / 2) < high:
        probability = float(np.exp(numbers * math.log(middle) - middle - log_factorials).sum())
        low, high = (middle, high) if probability > 1 - confidence else (low, middle)
    return high
