"""The parent's side of a load: start the child, watch it, say in one line why it died."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from edgekit import child
from edgekit.load.rate import MOST_TRIALS, Found
from edgekit.load.scenarios import Load, Result
from edgekit.load.subjects import Words

OPENING_S = 120.0
"""For the start of the child and of its interpreter, at most."""
PATIENCE = 4.0
"""A load may take so many times its seconds: an overloaded server is left after twice."""


@dataclass(frozen=True)
class Job:
    """What one process is driven with, one load after another. `search` is a server load whose rate is looked for."""

    subject: Words
    loads: tuple[Load, ...] = ()
    search: Load | None = None

    @property
    def limit_s(self) -> float:
        """When nothing more is to be expected of it."""
        searched_s = MOST_TRIALS * _longest_s(self.search) if self.search else 0.0
        return OPENING_S + sum(map(_longest_s, self.loads)) + searched_s

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
    """What came of a job; `failed` says in one line why the rest is missing."""

    results: list[Result] = field(default_factory=list)
    found: Found | None = None
    failed: str | None = None


def drive(job: Job, limit_s: float | None = None, started: Callable[[int], object] | None = None) -> Outcome:
    """Run the job in a fresh process that ends with this one; raises nothing of what happens there.

    `started` hears the process id.
    """
    limit_s = job.limit_s if limit_s is None else limit_s
    with tempfile.TemporaryDirectory(prefix="edgekit-load-") as folder:
        path = Path(folder) / "job.json"
        path.write_text(json.dumps(job.to_json()))
        ended = child.run("edgekit.load.child", [str(path)], path.with_suffix(".log"), limit_s, started=started)
        died = f"no end within {limit_s:g} s" if ended.late else ended.cause() if ended.code else None
        notes = child.notes(path.with_suffix(".journal"))
    failed = next((note["failed"] for note in notes if "failed" in note), died)
    begun = next((note["begins"] for note in reversed(notes) if "begins" in note), "its start")
    return Outcome(
        results=[Result.from_json(note["result"]) for note in notes if "result" in note],
        found=next((Found.from_json(note["found"]) for note in notes if "found" in note), None),
        failed=f"{begun}: {' '.join(failed.split())}" if failed else None,
    )


def _longest_s(load: Load) -> float:
    slowest = load.queries / load.rate_per_s if load.rate_per_s else 0.0
    return PATIENCE * max(load.seconds, slowest) + 10.0
