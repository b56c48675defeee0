"""The anchors: the baseline's float file on each target, beside which every file is timed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgekit.core.budget import RelativeLatency
from edgekit.core.hashing import write_json
from edgekit.runner.files import make_folder
from edgekit.search.files import Content
from edgekit.search.measurement import Protocol
from edgekit.workbook.config_file import split_settings
from edgekit.workbook.plan import Plan
from edgekit.workbook.workers import Job, Pool

BASELINE, FILE = "baseline", "anchors.json"


@dataclass(frozen=True)
class Anchors:
    """Contents by target, the baseline's accuracy on validation, and how rounds are timed.

    `beside` are the rivals of relative limits, timed in each round too: {"raw": path of a sample, "files": by sha256}.
    """

    contents: dict[str, Content]
    accuracy: float
    protocol: Protocol
    beside: dict[str, Any] = field(default_factory=dict)

    @property
    def bytes(self) -> dict[str, int]:
        """Of the baseline's float file, by target."""
        return {target: content.bytes for target, content in self.contents.items()}


def prepare(plan: Plan, folder: Path, targets: Sequence[str], caches: Sequence[str], pool: Pool) -> Anchors:
    """Profile the baseline and convert it, once for a study; again where a file of them is gone or was changed."""
    place = folder / BASELINE
    known, wanted = _read(place / FILE), rivals(plan, targets)
    if known is None or not set(wanted) <= set(known.get("beside", {}).get("files", {})):
        arguments = {
            "config": str(plan.path),
            "settings": split_settings(plan.settings),
            "folder": str(place.absolute()),
            "targets": list(targets),
            "caches": list(caches),
        }
        known = pool.run([Job("baseline", "edgekit.search.work:baseline", arguments)])[0]
        make_folder(place)
        write_json(place / FILE, known)
    contents = {target: Content.from_json(each) for target, each in known["anchors"].items()}
    return Anchors(contents, known["accuracy"], _protocol(plan, known["input"]), known.get("beside", {}))


def rivals(plan: Plan, targets: Sequence[str]) -> dict[str, RelativeLatency]:
    """Limits of these targets that are relative to a rival, by its sha256."""
    limits = plan.run.budget.timed_beside(targets).values()
    return {limit.sha256: limit for limit in limits if limit.sha256 is not None}


def _protocol(plan: Plan, sample: str) -> Protocol:
    options: Any = plan.stages["benchmark"]
    return Protocol(
        input=sample,
        rounds=options.rounds,
        calls_per_round=options.calls_per_round,
        warmup_per_round=options.warmup_per_round,
        confidence=options.confidence,
        limit_s=60 * options.most_minutes,
        threads=options.inference_threads,
    )


def _read(path: Path) -> dict[str, Any] | None:
    try:
        known: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        contents = [Content.from_json(each) for each in known["anchors"].values()]
        known["accuracy"] = float(known["accuracy"])
        needed = [known["input"]]
        if beside := known.get("beside"):
            needed += [beside["raw"], *(each["path"] for each in beside["files"].values())]
        whole = all(Path(each).is_file() for each in needed) and all(content.is_whole() for content in contents)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return known if whole else None
