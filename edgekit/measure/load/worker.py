"""The worker process of a load test, which `launcher` starts.

It writes each step and its result to JOB.journal, one JSON object per line, so that a crash does not lose what was
measured before.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from edgekit.measure.load import loadgen_run, rate_search
from edgekit.measure.load.launcher import LoadJob
from edgekit.measure.load.scenarios import Load

WARM_UP_S = 0.5
"""The longest time for the warm-up, a closed loop that also measures the throughput."""

WriteNote = Callable[..., None]


def run_job(job_file: str) -> int:
    """Run the job in a file, and return the exit status: 0 if all loads succeeded, otherwise 1."""
    path = Path(job_file)
    job = LoadJob.from_json(json.loads(path.read_text(encoding="utf-8")))
    with open(path.with_suffix(".journal"), "a", buffering=1, encoding="utf-8") as journal:

        def note(**fields: Any) -> None:
            journal.write(json.dumps(fields) + "\n")

        try:
            _run_loads(job, path.parent, note)
        except Exception as error:
            traceback.print_exc()
            note(failed=f"{type(error).__name__}: {error}"[:300])
            return 1
    return 0


def _run_loads(job: LoadJob, folder: Path, note: WriteNote) -> None:
    note(begins="opening the model")
    subject = job.subject.open()
    lengths = [load.seconds for load in (*job.loads, *([job.search] if job.search else []))]
    capacity_per_s = subject.capacity(min(WARM_UP_S, *lengths))
    for load in job.loads:
        note(begins=load.scenario, within_s=loadgen_run.timeout_s(load, capacity_per_s))
        note(result=loadgen_run.run_load(load, subject, capacity_per_s, folder / load.scenario).to_json())
    if job.search:
        search_result = _search_rate(job.search, subject, capacity_per_s, folder / "search", note)
        note(found=search_result.to_json())


def _search_rate(
    load: Load, subject: loadgen_run.Subject, capacity_per_s: float, folder: Path, note: WriteNote
) -> rate_search.RateSearch:
    def attempt(rate_per_s: float, reason: rate_search.TrialReason, number: int) -> rate_search.RateTrial:
        seconds = load.seconds * (1 if reason == "confirm" else rate_search.SEARCH_SECONDS_SHARE)
        trial_load = replace(load, seconds=seconds, rate_per_s=rate_per_s, seed=load.seed + number)
        note(begins="the search for the highest rate", within_s=loadgen_run.timeout_s(trial_load, capacity_per_s))
        trial = rate_search.RateTrial.of(
            loadgen_run.run_load(trial_load, subject, capacity_per_s, folder), rate_per_s, reason
        )
        note(trial=trial.to_json())
        return trial

    return rate_search.find_highest_rate(attempt, capacity_per_s, load.p99_bound_ms)
