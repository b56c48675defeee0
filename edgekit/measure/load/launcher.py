"""Start the worker process of a load test, watch it, and report in one line why it failed."""

from __future__ import annotations

import importlib.util
import json
import math
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from edgekit.core import progress, subprocesses
from edgekit.measure.load.rate_search import RateSearch, RateTrial, interrupted_search
from edgekit.measure.load.scenarios import Load, LoadResult
from edgekit.measure.load.subjects import SubjectSpec

START_TIMEOUT_S = 120.0
"""Time limit for starting the worker and warming up; later the worker announces its own limits."""


@dataclass(frozen=True)
class LoadJob:
    """The loads that one process runs in turn.

    `search` is a load of the scenario `server`. The process searches for the highest rate at which this load meets its
    bound on p99.
    """

    subject: SubjectSpec
    loads: tuple[Load, ...] = ()
    search: Load | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> LoadJob:
        return cls(
            subject=SubjectSpec(**fields["subject"]),
            loads=tuple(Load.from_json(each) for each in fields["loads"]),
            search=Load.from_json(fields["search"]) if fields["search"] else None,
        )


@dataclass(frozen=True)
class LoadOutcome:
    """The results of a job.

    If the process failed, `failed` says why in one line, later results are missing, and `search` may be incomplete.
    """

    results: list[LoadResult] = field(default_factory=list)
    search: RateSearch | None = None
    failed: str | None = None


def why_unavailable() -> str:
    """The reason why no load test can run here; empty if LoadGen is installed."""
    if importlib.util.find_spec("mlperf_loadgen"):
        return ""
    return (
        "LoadGen is not installed. It has no wheel for Python 3.14 or for Linux on aarch64; elsewhere run: "
        "pip install mlcommons-loadgen"
    )


def run_loads(job: LoadJob, limit_s: float = math.inf, on_start: Callable[[int], object] | None = None) -> LoadOutcome:
    """Run a job in a new process that ends with this one. Failures in that process are returned, not raised.

    Parameters
    ----------
    limit_s
        Time limit for the whole job. The process also ends when one step takes longer than expected.
    on_start
        Called with the id of the process.
    """
    if reason := why_unavailable():
        return LoadOutcome(failed=reason)
    with tempfile.TemporaryDirectory(prefix="edgekit-load-") as folder:
        path = Path(folder) / "job.json"
        path.write_text(json.dumps(job.to_json()), encoding="utf-8")
        log = path.with_suffix(".log")
        with progress.step("opening the model") as progress_step:
            step = _WorkerStep(path.with_suffix(".journal"), progress_step)
            exit_status = subprocesses.run(
                "edgekit.measure.load.worker:run_job",
                [str(path)],
                log,
                limit_s,
                on_start=on_start,
                should_stop=step.is_late,
            )
        if exit_status.code and (exit_status.timed_out or step.late):
            failure: str | None = f"did not end within {limit_s if exit_status.timed_out else step.within_s:,.0f} s"
        else:
            failure = exit_status.describe() if exit_status.code else None
        notes = subprocesses.read_journal(path.with_suffix(".journal"))
    failed = next((note["failed"] for note in notes if "failed" in note), failure)
    step_name = next((note["begins"] for note in reversed(notes) if "begins" in note), "its start")
    return LoadOutcome(
        results=[LoadResult.from_json(note["result"]) for note in notes if "result" in note],
        search=_search_result(job, notes),
        failed=f"{step_name}: {' '.join(failed.split())}" if failed else None,
    )


class _WorkerStep:
    """The current step of the worker according to its journal, and whether it takes longer than the worker announced.

    Only the worker knows how fast queries are answered, and so how long a step takes.
    """

    def __init__(self, journal: Path, progress_step: progress.Step | None = None) -> None:
        self._journal, self._progress, self._read_bytes, self._started = journal, progress_step, 0, time.monotonic()
        self.within_s, self.late = START_TIMEOUT_S, False

    def is_late(self) -> bool:
        """Whether the step exceeds its time limit; called often by `subprocesses.run`."""
        size = self._journal.stat().st_size if self._journal.is_file() else 0
        if size != self._read_bytes:
            notes = subprocesses.read_journal(self._journal)
            limits = [note["within_s"] for note in notes if "within_s" in note]
            names = [note["begins"] for note in notes if "begins" in note]
            if self._progress is not None and names:
                self._progress.update(0, name=names[-1].replace("_", " "))
            self._read_bytes, self._started, self.within_s = size, time.monotonic(), (limits or [START_TIMEOUT_S])[-1]
        self.late = time.monotonic() - self._started > self.within_s
        return self.late


def _search_result(job: LoadJob, notes: list[dict[str, Any]]) -> RateSearch | None:
    """The result of the rate search, or of the trials before a crash. None without any."""
    finished = next((RateSearch.from_json(note["found"]) for note in notes if "found" in note), None)
    trials = tuple(RateTrial.from_json(note["trial"]) for note in notes if "trial" in note)
    return (
        interrupted_search(job.search.p99_bound_ms, trials) if finished is None and trials and job.search else finished
    )
