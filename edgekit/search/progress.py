"""The progress of a running search: finished trials, the best values so far, and the remaining time."""

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
class SearchProgress:
    """Shows the progress of a search. Pass it to `edgekit.search.study.search` as `on_batch`."""

    step: progress.Step
    trials: int | None
    minutes: float | None
    started: float
    earlier_trials: int | None = None
    batches: int = 0

    def __call__(self, row: StudyRow) -> None:
        """Update the number of trials, the best values and the remaining time after a batch."""
        done = len(row["trials"])
        if self.earlier_trials is None:
            self.earlier_trials = sum(trial["batch"] < row["batches"][-1]["number"] for trial in row["trials"])
        self.batches += 1
        self.step.update(done, best=best_values(row) or None)
        self.step.expect(self._remaining_s(done))

    def _remaining_s(self, done: int) -> float | None:
        """Estimate the remaining seconds from the pace of this command; None if nothing is known yet.

        A time limit is rounded up to whole batches.
        """
        elapsed_s = time.monotonic() - self.started
        new_trials = done - (self.earlier_trials or 0)
        at_this_pace_s = (
            None if not self.trials or not new_trials else max(0, self.trials - done) * elapsed_s / new_trials
        )
        if self.minutes is None:
            return at_this_pace_s
        batch_s = elapsed_s / self.batches
        remaining_s = max(0.0, 60 * self.minutes - elapsed_s)
        until_end_s = (
            -(-remaining_s // batch_s) * batch_s
        )  # the last batch starts before the time limit and ends after it
        return until_end_s if at_this_pace_s is None else min(until_end_s, at_this_pace_s)


@contextmanager
def show_progress(trials: int | None = None, minutes: float | None = None) -> Iterator[SearchProgress]:
    """Show the progress of a whole search. Use it inside `ProgressDisplay.during`.

    Open the worker pool inside this context. Its processes then publish no progress of their own, which would overwrite
    that of the search.
    """
    with progress.step("", "trials", trials or 0) as step:
        reporter = SearchProgress(step, trials, minutes, time.monotonic())
        if minutes is not None:
            step.expect(60 * minutes)
        progress_file = os.environ.pop(progress.FILE, None)
        try:
            yield reporter
        finally:
            if progress_file is not None:
                os.environ[progress.FILE] = progress_file


def best_values(row: StudyRow) -> str:
    """The best value of each objective on the front, for example `98.33 %, 0.0241 ms, 8.72 kB apart, front of 5`.

    "apart" means that the values belong to different trials. The text is empty as long as there is no front.
    """
    study = Study(Path(FILE), row)
    points = recommend.points(study)
    texts = {each.place: each.shown(point.trial["values"][each.place]) for point in points for each in point.best_in}
    if not texts:
        return ""
    suffix = " apart" if len(points) > 1 else ""
    return f"{', '.join(texts[place] for place in sorted(texts))}{suffix}, front of {len(study.front)}"
