"""Drives loads in a process of its own, which `launch` starts.

It writes each step and its result to JOB.journal, one JSON object a line, so that what was measured before a
crash is kept.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from edgekit.measure.load import drive, rate
from edgekit.measure.load.launch import Job
from edgekit.measure.load.scenarios import Load

WARM_UP_S = 0.5
"""Longest warm-up: a closed loop, which also measures the throughput."""

Note = Callable[..., None]


def drive_all(job_file: str) -> int:
    """Run the job in a file; 0 if all of it came to a result."""
    path = Path(job_file)
    job = Job.from_json(json.loads(path.read_text(encoding="utf-8")))
    with open(path.with_suffix(".journal"), "a", buffering=1, encoding="utf-8") as journal:

        def note(**fields: Any) -> None:
            journal.write(json.dumps(fields) + "\n")

        try:
            _work(job, path.parent, note)
        except Exception as error:
            traceback.print_exc()
            note(failed=f"{type(error).__name__}: {error}"[:300])
            return 1
    return 0


def _work(job: Job, folder: Path, note: Note) -> None:
    note(begins="opening it")
    subject = job.subject.open()
    lengths = [load.seconds for load in (*job.loads, *([job.search] if job.search else []))]
    capacity_per_s = subject.capacity(min(WARM_UP_S, *lengths))
    for load in job.loads:
        note(begins=load.scenario, within_s=drive.longest_s(load, capacity_per_s))
        note(result=drive.run(load, subject, capacity_per_s, folder / load.scenario).to_json())
    if job.search:
        found = _search(job.search, subject, capacity_per_s, folder / "search", note)
        note(found=found.to_json())


def _search(load: Load, subject: drive.Subject, capacity_per_s: float, folder: Path, note: Note) -> rate.RateSearch:
    def attempt(rate_per_s: float, reason: rate.Reason, number: int) -> rate.Trial:
        seconds = load.seconds * (1 if reason == "confirm" else rate.SEARCH_SHARE)
        one = replace(load, seconds=seconds, rate_per_s=rate_per_s, seed=load.seed + number)
        note(begins="the search for the highest rate", within_s=drive.longest_s(one, capacity_per_s))
        trial = rate.Trial.of(drive.run(one, subject, capacity_per_s, folder), rate_per_s, reason)
        note(trial=trial.to_json())
        return trial

    return rate.find(attempt, capacity_per_s, load.p99_bound_ms)
