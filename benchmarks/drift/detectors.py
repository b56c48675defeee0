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


def outcome(alarms: Sequence[Alarm], stream: Stream, accuracy: float) -> Outcome:
    """Of the alarms in one stream with a drift; `accuracy` is that before it."""
    true = [alarm for alarm in alarms if alarm.at > stream.onset]
    meanwhile = stream.right()[stream.onset : true[0].at if true else len(stream)]
    wrong = float(len(meanwhile) * accuracy - meanwhile.sum())
    delay = true[0].at - stream.onset if true else None
    return Outcome((delay,), tuple(alarm.by for alarm in true[:1]), (wrong,), len(alarms) - len(true), stream.onset)


def together(outcomes: Sequence[Outcome]) -> Outcome:
    """Those of several streams as one."""
    return Outcome(
        tuple(delay for each in outcomes for delay in each.delays), tuple(by for each in outcomes for by in each.by),
        tuple(wrong for each in outcomes for wrong in each.wrong), sum(each.false for each in outcomes),
        sum(each.before for each in outcomes),
    )  # fmt: skip
