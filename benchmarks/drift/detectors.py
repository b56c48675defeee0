"""What a detector says to a stream, and what that is worth: found or not, how late, by what, and falsely how often."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from benchmarks.drift.pools import Stream


class Alarm(NamedTuple):
    """`at` samples had been seen; `by` names the statistic or the test."""

    at: int
    by: str


Detector = Callable[[Stream], Sequence[Alarm]]
"""Alarms in order, up to the first behind the stream's onset. A detector begins anew behind each false alarm."""


@dataclass(frozen=True)
class Outcome:
    """Of one detector on the streams of one drift. A delay is in samples from the onset, None where it was not found.

    `wrong` are the wrong answers that the drift caused until then, or until the end: those there were, less those
    that the accuracy before would have given.
    """

    delays: tuple[int | None, ...]
    by: tuple[str, ...]
    wrong: tuple[float, ...]
    false: int
    before: int

    @property
    def found(self) -> int:
        """In how many streams."""
        return sum(delay is not None for delay in self.delays)

    @property
    def delay(self) -> float | None:
        """The median over all streams; None where half of them or more were not found."""
        middle = float(np.median([np.inf if delay is None else delay for delay in self.delays]))
        return middle if np.isfinite(middle) else None

    @property
    def mostly_by(self) -> str:
        """What found it most often."""
        return max(set(self.by), key=self.by.count) if self.by else ""


def outcome(detector: Detector, streams: Sequence[Stream], accuracy: float) -> Outcome:
    """Streams with one drift each; `accuracy` is that before it."""
    delays, by, wrong, false = [], [], [], 0
    for stream in streams:
        alarms = detector(stream)
        true = [alarm for alarm in alarms if alarm.at > stream.onset]
        false += len(alarms) - len(true)
        delays.append(true[0].at - stream.onset if true else None)
        by += [true[0].by] if true else []
        meanwhile = stream.right()[stream.onset : true[0].at if true else len(stream)]
        wrong.append(float(len(meanwhile) * accuracy - meanwhile.sum()))
    before = sum(stream.onset for stream in streams)
    return Outcome(tuple(delays), tuple(by), tuple(wrong), false, before)


def false_alarms(detector: Detector, streams: Sequence[Stream]) -> list[Alarm]:
    """Of sound streams: every alarm is false."""
    return [alarm for stream in streams for alarm in detector(stream)]
