"""What a search shows while it works: trials done, the best of each objective so far, and the time left."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from edgekit.core import progress
from edgekit.core.schema.study import StudyRow
from edgekit.report.search import recommend
from edgekit.report.search.studies import FILE, Study


@dataclass
class Reporter:
    """Of the search that goes on. Its call is what `search` takes as `on_batch`."""

    step: progress.Step
    trials: int | None
    minutes: float | None
    began: float
    before: int | None = None
    batches: int = 0

    def __call__(self, row: StudyRow) -> None:
        """A batch is whole: how many trials there are, the best of them, and how long the rest will take."""
        done = len(row["trials"])
        if self.before is None:
            self.before = sum(trial["batch"] < row["batches"][-1]["number"] for trial in row["trials"])
        self.batches += 1
        self.step.update(done, best=best(row) or None)
        self.step.expect(self._left_s(done))

    def _left_s(self, done: int) -> float | None:
        """At the pace of this command, whole batches within the minutes; earlier trials cost it nothing."""
        taken = time.monotonic() - self.began
        gained = done - (self.before or 0)
        pace = None if not self.trials or not gained else max(0, self.trials - done) * taken / gained
        if self.minutes is None:
            return pace
        a_batch = taken / self.batches
        rest = max(0.0, 60 * self.minutes - taken)
        bound = -(-rest // a_batch) * a_batch  # the last batch begins before the end, and ends behind it
        return bound if pace is None else min(bound, pace)


@contextmanager
def shown(trials: int | None = None, minutes: float | None = None) -> Iterator[Reporter]:
    """A step of `edgekit.core.progress` for the whole search; within `Watch.during`.

    Whatever begins within publishes to nobody: several processes would write over one another and over this. So open
    the pool within.
    """
    with progress.step("", "trials", trials or 0) as step:
        told = Reporter(step, trials, minutes, time.monotonic())
        if minutes is not None:
            step.expect(60 * minutes)
        before = os.environ.pop(progress.FILE, None)
        try:
            yield told
        finally:
            if before is not None:
                os.environ[progress.FILE] = before


def best(row: StudyRow) -> str:
    """`98.33 %, 0.0241 ms, 8.72 kB apart, front of 5`: of each objective its best; empty without a front."""
    study = Study(Path(FILE), row)
    points = recommend.points(study)
    found = {each.place: each.shown(point.trial["values"][each.place]) for point in points for each in point.best_in}
    if not found:
        return ""
    apart = " apart" if len(points) > 1 else ""
    return f"{', '.join(found[place] for place in sorted(found))}{apart}, front of {len(study.front)}"
