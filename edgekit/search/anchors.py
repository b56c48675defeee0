"""The anchors: the baseline's float file on each target, beside which every file is timed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgekit.core.hashing import write_json
from edgekit.runner.files import make_folder
from edgekit.search.files import Content
from edgekit.search.measuring import Protocol
from edgekit.workbook.config_file import split_settings
from edgekit.workbook.plan import Plan
from edgekit.workbook.workers import Pool, Work

BASELINE, FILE = "baseline", "anchors.json"


@dataclass(frozen=True)
class Anchors:
    """Contents by target, the baseline's accuracy on validation, and how rounds are timed."""

    contents: dict[str, Content]
    accuracy: float
    protocol: Protocol


def prepare(plan: Plan, folder: Path, targets: Sequence[str], caches: Sequence[str], pool: Pool) -> Anchors:
    """Profile the baseline and convert it, once for a study; again where a file of them is gone or was changed."""
    place = folder / BASELINE
    known = _read(place / FILE)
    if known is None:
        arguments = {
            "config": str(plan.path),
            "settings": split_settings(plan.settings),
            "folder": str(place.absolute()),
            "targets": list(targets),
            "caches": list(caches),
        }
        known = pool.run([Work("baseline", "edgekit.search.work:baseline", arguments)])[0]
        make_folder(place)
        write_json(place / FILE, known)
    contents = {target: Content.from_json(each) for target, each in known["anchors"].items()}
    return Anchors(contents, known["accuracy"], _protocol(plan, known["input"]))


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
        known: dict[str, Any] = json.loads(path.read_text())
        contents = [Content.from_json(each) for each in known["anchors"].values()]
        known["accuracy"] = float(known["accuracy"])
        whole = Path(known["input"]).is_file() and all(content.is_whole() for content in contents)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return known if whole else None
