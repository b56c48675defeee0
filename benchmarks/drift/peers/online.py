"""river's detectors. They compare a stream with its own past, so each is first shown the reference's samples.

They get the monitor's own statistics as ranks in the reference, 0 to 1, one detector for each; the first that notices
a change gives the alarm. Alone on the confidence they get it as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.drift.detectors import Alarm
from benchmarks.drift.pools import Stream

ADWIN, PAGE_HINKLEY, KSWIN = "ADWIN", "Page-Hinkley", "KSWIN"
DEFAULTS = {ADWIN: 0.002, PAGE_HINKLEY: 50.0, KSWIN: 0.005}
"""river's own: delta, threshold, alpha."""
MEMORY = {ADWIN: 10**9, PAGE_HINKLEY: 10**9, KSWIN: 100}
"""How much of the past each keeps: KSWIN forgets what left its window."""
LADDERS = {
    ADWIN: [2e-3 * 10.0**-step for step in range(0, 12)],
    PAGE_HINKLEY: [50.0 * 1.5**step for step in range(-2, 9)],
}
"""From the most sensitive to the least: what is tried to find the budget of false alarms."""


def detector(kind: str, setting: float) -> Any:
    """One of river's, with everything else as it comes."""
    from river import drift

    if kind == ADWIN:
        return drift.ADWIN(delta=setting)
    if kind == PAGE_HINKLEY:
        return drift.PageHinkley(threshold=setting)
    return drift.KSWIN(alpha=setting, seed=0)


@dataclass(frozen=True)
class Reference:
    """Statistics of validation samples, (n, k), and their names; `confidence` is the place of the confidence."""

    table: np.ndarray
    names: Sequence[str]

    @property
    def confidence(self) -> int:
        """Which column it is."""
        return list(self.names).index("confidence")

    def ranks(self, table: np.ndarray) -> np.ndarray:
        """Each value's place in the reference, from 0 to 1; the middle of its ties."""
        ranks = np.empty(table.shape, np.float64)
        for column in range(table.shape[1]):
            known = np.sort(self.table[:, column])
            low, high = np.searchsorted(known, table[:, column]), np.searchsorted(known, table[:, column], "right")
            ranks[:, column] = (low + high) / (2 * len(known))
        return ranks


def watcher(kind: str, setting: float, reference: Reference, only_confidence: bool) -> Callable[[Stream], list[Alarm]]:
    """A detector of this kind for each statistic, or one for the confidence."""
    columns = [reference.confidence] if only_confidence else list(range(len(reference.names)))

    def values(table: np.ndarray) -> np.ndarray:
        return table[:, columns] if only_confidence else reference.ranks(table)

    known = values(reference.table)[-MEMORY[kind] :]

    def begin() -> list[Any]:
        detectors = [detector(kind, setting) for _ in columns]
        for each, past in zip(detectors, known.T):
            for value in past.tolist():
                each.update(value)
        return detectors

    def alarms(stream: Stream) -> list[Alarm]:
        detectors, found = begin(), []
        for at, row in enumerate(values(stream.table()).tolist(), 1):
            for number, value in enumerate(row):
                detectors[number].update(value)
                if detectors[number].drift_detected:
                    found.append(Alarm(at, reference.names[columns[number]]))
                    if at > stream.onset:
                        return found
                    detectors = begin()
                    break
        return found

    return alarms
