"""The parent's side of a load: start the worker, watch it, report in one line why it died."""

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
from edgekit.measure.load.rate import RateSearch, Trial, cut_off
from edgekit.measure.load.scenarios import Load, Result
from edgekit.measure.load.subjects import SubjectSpec

OPENING_S = 120.0
"""For the start of the child, of its interpreter and for warming up, at most; from then on the child says it itself."""


@dataclass(frozen=True)
class Job:
    """The loads of one process, in turn. `search` is a server load whose highest rate is searched for."""

    subject: SubjectSpec
    loads: tuple[Load, ...] = ()
    search: Load | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Job:
        return cls(
            subject=SubjectSpec(**fields["subject"]),
            loads=tuple(Load.from_json(each) for each in fields["loads"]),
            search=Load.from_json(fields["search"]) if fields["search"] else None,
        )


@dataclass(frozen=True)
class Outcome:
    """The result of a job; `failed` says in one line why the rest is missing. `search` may be half done then."""

    results: list[Result] = field(default_factory=list)
    search: RateSearch | None = None
    failed: str | None = None


def unavailable() -> str:
    """Why no load can be driven here; empty where LoadGen is installed."""
    if importlib.util.find_spec("mlperf_loadgen"):
        return ""
    wheels = "it has no wheel for Python 3.14 nor for Linux on aarch64"
    return f"LoadGen is not installed; {wheels}, elsewhere: pip install mlcommons-loadgen"


def drive(job: Job, limit_s: float = math.inf, started: Callable[[int], object] | None = None) -> Outcome:
    """Run the job in a fresh process that ends with this one; raises nothing of what happens there.

    It ends as well after `limit_s`, or when one step takes longer than expected. `started` gets its process id.
    """
    if reason := unavailable():
        return Outcome(failed=reason)
    with tempfile.TemporaryDirectory(prefix="edgekit-load-") as folder:
        path = Path(folder) / "job.json"
        path.write_text(json.dumps(job.to_json()), encoding="utf-8")
        log = path.with_suffix(".log")
        with progress.step("opening it") as shown:
            step = _Step(path.with_suffix(".journal"), shown)
            ended = subprocesses.run(
                "edgekit.measure.load.worker:drive_all",
                [str(path)],
                log,
                limit_s,
                on_start=started,
                should_stop=step.is_late,
            )
        if ended.code and (ended.timed_out or step.late):
            died: str | None = f"no end within {limit_s if ended.timed_out else step.within_s:,.0f} s"
        else:
            died = ended.describe() if ended.code else None
        notes = subprocesses.read_journal(path.with_suffix(".journal"))
    failed = next((note["failed"] for note in notes if "failed" in note), died)
    begun = next((note["begins"] for note in reversed(notes) if "begins" in note), "its start")
    return Outcome(
        results=[Result.from_json(note["result"]) for note in notes if "result" in note],
        search=_search_result(job, notes),
        failed=f"{begun}: {' '.join(failed.split())}" if failed else None,
    )


class _Step:
    """The current step of the worker by its journal, and whether it takes longer than the worker announced.

    Only the worker knows how fast the answers come, and so how long a step takes.
    """

    def __init__(self, journal: Path, shown: progress.Step | None = None) -> None:
        self._journal, self._shown, self._read, self._begun = journal, shown, 0, time.monotonic()
        self.within_s, self.late = OPENING_S, False

    def is_late(self) -> bool:
        """Called often by `subprocesses.run`."""
        written = self._journal.stat().st_size if self._journal.is_file() else 0
        if written != self._read:
            notes = subprocesses.read_journal(self._journal)
            limits = [note["within_s"] for note in notes if "within_s" in note]
            begun = [note["begins"] for note in notes if "begins" in note]
            if self._shown is not None and begun:
                self._shown.update(0, name=begun[-1].replace("_", " "))
            self._read, self._begun, self.within_s = written, time.monotonic(), (limits or [OPENING_S])[-1]
        self.late = time.monotonic() - self._begun > self.within_s
        return self.late


def _search_result(job: Job, notes: list[dict[str, Any]]) -> RateSearch | None:
    """The result of the search, or what a crash left of it."""
    finished = next((RateSearch.from_json(note["found"]) for note in notes if "found" in note), None)
    trials = tuple(Trial.from_json(note["trial"]) for note in notes if "trial" in note)
    return cut_off(job.search.p99_bound_ms, trials) if finished is None and trials and job.search else finished
