"""The parent's side of a load: start the child, watch it, say in one line why it died."""

from __future__ import annotations

import json
import math
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from edgekit.core import progress, subprocesses
from edgekit.measure.load.rate import Found, Trial, cut_off
from edgekit.measure.load.scenarios import Load, Result
from edgekit.measure.load.subjects import Words

OPENING_S = 120.0
"""For the start of the child, of its interpreter and for warming up, at most; from then on the child says it itself."""


@dataclass(frozen=True)
class Job:
    """What one process is driven with, one load after another. `search` is a server load whose rate is looked for."""

    subject: Words
    loads: tuple[Load, ...] = ()
    search: Load | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Job:
        return cls(
            subject=Words(**fields["subject"]),
            loads=tuple(Load.from_json(each) for each in fields["loads"]),
            search=Load.from_json(fields["search"]) if fields["search"] else None,
        )


@dataclass(frozen=True)
class Outcome:
    """What came of a job; `failed` says in one line why the rest is missing. `found` may be half a search then."""

    results: list[Result] = field(default_factory=list)
    found: Found | None = None
    failed: str | None = None


def drive(job: Job, limit_s: float = math.inf, started: Callable[[int], object] | None = None) -> Outcome:
    """Run the job in a fresh process that ends with this one; raises nothing of what happens there.

    It ends as well after `limit_s`, or where one step takes longer than was to be expected. `started` hears its id.
    """
    with tempfile.TemporaryDirectory(prefix="edgekit-load-") as folder:
        path = Path(folder) / "job.json"
        path.write_text(json.dumps(job.to_json()))
        log = path.with_suffix(".log")
        with progress.step("opening it") as shown:
            step = _Step(path.with_suffix(".journal"), shown)
            ended = subprocesses.run(
                "edgekit.measure.load.worker", [str(path)], log, limit_s, started=started, look=step.is_late
            )
        if ended.code and (ended.late or step.late):
            died: str | None = f"no end within {limit_s if ended.late else step.within_s:,.0f} s"
        else:
            died = ended.cause() if ended.code else None
        notes = subprocesses.notes(path.with_suffix(".journal"))
    failed = next((note["failed"] for note in notes if "failed" in note), died)
    begun = next((note["begins"] for note in reversed(notes) if "begins" in note), "its start")
    return Outcome(
        results=[Result.from_json(note["result"]) for note in notes if "result" in note],
        found=_found(job, notes),
        failed=f"{begun}: {' '.join(failed.split())}" if failed else None,
    )


class _Step:
    """What the child is at by its journal, and whether that takes longer than the child itself said it may.

    Only the child knows how fast the answers come, and so how long their least number takes.
    """

    def __init__(self, journal: Path, shown: progress.Step | None = None) -> None:
        self._journal, self._shown, self._read, self._begun = journal, shown, 0, time.monotonic()
        self.within_s, self.late = OPENING_S, False

    def is_late(self) -> bool:
        """For `child.run`, which asks often."""
        written = self._journal.stat().st_size if self._journal.is_file() else 0
        if written != self._read:
            notes = subprocesses.notes(self._journal)
            told = [note["within_s"] for note in notes if "within_s" in note]
            begun = [note["begins"] for note in notes if "begins" in note]
            if self._shown is not None and begun:
                self._shown.at(0, name=begun[-1].replace("_", " "))
            self._read, self._begun, self.within_s = written, time.monotonic(), (told or [OPENING_S])[-1]
        self.late = time.monotonic() - self._begun > self.within_s
        return self.late


def _found(job: Job, notes: list[dict[str, Any]]) -> Found | None:
    """What the search came to, or what is left of it."""
    found = next((Found.from_json(note["found"]) for note in notes if "found" in note), None)
    trials = tuple(Trial.from_json(note["trial"]) for note in notes if "trial" in note)
    return cut_off(job.search.p99_bound_ms, trials) if found is None and trials and job.search else found
