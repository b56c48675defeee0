"""Answers to a stream held against its true events: how many are detected, and how many false alarms come an hour.

Keyword spotting is evaluated so: misses against false alarms per hour (Chen, Parada and Heigold 2014, ICASSP;
Sainath and Parada 2015, Interspeech). Here

- an event is a run of windows with one label other than `rest`, out of one piece of a recording;
- it is detected where its label is said within it, or within `tolerance` windows behind it, for smoothing answers late.
  The tolerance ends where the next event of that label begins: what is said there answers for that one alone;
- a false alarm is a run of windows in which a label is said outside of its own events and their tolerance. One that
  goes on counts again every `repeat` windows, as in WeKws's `compute_det.py`: a device would act again. Without that
  a model that never falls silent would raise one alarm in all;
- a wrong label within an event is a false alarm too, for a device would act on it;
- the hours are those outside of all events and their tolerance. So wrong labels within events raise the rate, never
  lower it.

The tolerance does not end with a piece. The pieces that sources give hold one label each, so none would be left: what
is said late is said in the piece behind, as the stream is played.

The bound of a rate is Poisson's exact one (Garwood 1936, Biometrika 28:437-442). It takes alarms for independent.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class EventCounts:
    """What was counted: windows outside of events, those of them with any alarm, and the delays of what was detected.

    `found` (events,) bool says which events were detected, in order. A delay is in windows from the event's first.
    """

    found: np.ndarray
    false_alarms: int
    outside: int
    alarmed: int
    delays: tuple[int, ...]

    @property
    def events(self) -> int:
        """True events in the stream."""
        return len(self.found)

    @property
    def detected(self) -> int:
        """How many of them were detected."""
        return int(self.found.sum())


def count_events(
    said: np.ndarray, truth: np.ndarray, pieces: np.ndarray, rest: int, tolerance: int, repeat: int
) -> EventCounts:
    """Of windows in the order of time: what is said, what is true, and the piece of a recording, each (n,) integers.

    `tolerance` is in windows from 0, `repeat` in windows from 1.
    """
    n = len(truth)
    starts, ends = find_runs(truth != rest, truth, pieces)
    labels = truth[starts]
    outside, alarms = truth == rest, 0
    for label in np.union1d(labels, said[said != rest]):
        own = np.zeros(n + 1, np.int64)  # +1 where its events begin, -1 where their tolerance ends
        np.add.at(own, starts[labels == label], 1)
        np.add.at(own, np.minimum(ends[labels == label] + tolerance, n), -1)
        meant = np.cumsum(own[:-1]) > 0
        outside &= ~meant
        firsts, lasts = find_runs((said == label) & ~meant)
        alarms += int((-(-(lasts - firsts) // repeat)).sum())
    heard = [
        np.flatnonzero(said[start : min(end + tolerance, until)] == label)[:1]
        for start, end, label, until in zip(starts, ends, labels, _next_starts(starts, labels, n), strict=True)
    ]
    found = np.array([len(first) > 0 for first in heard], bool)
    delays = tuple(int(first[0]) for first in heard if len(first))
    return EventCounts(found, alarms, int(outside.sum()), int((outside & (said != rest)).sum()), delays)


def _next_starts(starts: np.ndarray, labels: np.ndarray, n: int) -> np.ndarray:
    """Where the next event of each one's label starts; `n` behind the last."""
    found = np.full(len(starts), n)
    for label in np.unique(labels):
        own = np.flatnonzero(labels == label)
        found[own[:-1]] = starts[own[1:]]
    return found


def find_runs(where: np.ndarray, *alike: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """First places, and those behind the last, of the longest runs of True in which each of `alike` stays the same."""
    n = len(where)
    breaks = np.zeros(n + 1, bool)
    breaks[[0, n]] = True
    for values in (where, *alike):
        breaks[1:n] |= values[1:] != values[:-1]
    edges = np.flatnonzero(breaks)
    firsts, ends = edges[:-1], edges[1:]
    kept = where[firsts] if n else np.zeros(0, bool)
    return firsts[kept], ends[kept]


def poisson_upper_bound(alarms: int, confidence: float) -> float:
    """The largest mean at which so few events, or fewer, are not yet rarer than 1 − `confidence`: Garwood's bound.

    It is half of the chi-squared quantile with 2 (alarms + 1) degrees of freedom: 3.0 for none at 0.95.
    """
    low, high = 0.0, 10.0 + 2 * alarms + 10 * math.sqrt(alarms - math.log(1 - confidence))
    numbers = np.arange(alarms + 1)
    factorials = np.array([math.lgamma(k + 1) for k in range(alarms + 1)])  # their logarithms, the same for every mean
    while low < (middle := (low + high) / 2) < high:
        as_few = float(np.exp(numbers * math.log(middle) - middle - factorials).sum())
        low, high = (middle, high) if as_few > 1 - confidence else (low, middle)
    return high
