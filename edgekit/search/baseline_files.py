"""Prepare the baseline's float file for each target. A study times all other files in the same rounds as these."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgekit.core.budget import RelativeLatencyLimit
from edgekit.core.hashing import write_json
from edgekit.runner.files import make_folder
from edgekit.search.measurement import TimingProtocol
from edgekit.search.model_files import ModelFiles
from edgekit.workbook.config_file import split_settings
from edgekit.workbook.plan import Plan
from edgekit.workbook.workers import Job, Pool

BASELINE_FOLDER, FILE = "baseline", "anchors.json"


@dataclass(frozen=True)
class BaselineFiles:
    """The baseline's files by target, its accuracy on validation, and how rounds are timed.

    `reference_inputs` describes the reference models that relative limits refer to, because they are timed in each
    round as well: {"raw": path of a raw sample, "files": descriptions of the files by sha256}. It is empty if no limit
    refers to a reference model.
    """

    files: dict[str, ModelFiles]
    accuracy: float
    protocol: TimingProtocol
    reference_inputs: dict[str, Any] = field(default_factory=dict)

    @property
    def bytes(self) -> dict[str, int]:
        """The size of the baseline's float file, by target."""
        return {target: files.bytes for target, files in self.files.items()}


def prepare_baseline(
    plan: Plan, folder: Path, targets: Sequence[str], caches: Sequence[str], pool: Pool
) -> BaselineFiles:
    """Profile and convert the baseline, or reuse the result that an earlier command stored in the folder of the study.

    The stored result is discarded if one of its files is missing or was changed, or if it lacks a reference model that
    a limit refers to.
    """
    baseline_folder = folder / BASELINE_FOLDER
    stored, limits = _read_stored(baseline_folder / FILE), relative_limits(plan, targets)
    if stored is None or not set(limits) <= set(stored.get("beside", {}).get("files", {})):
        arguments = {
            "config": str(plan.path),
            "settings": split_settings(plan.settings),
            "folder": str(baseline_folder.absolute()),
            "targets": list(targets),
            "caches": list(caches),
        }
        stored = pool.run([Job("baseline", "edgekit.search.jobs:prepare_baseline", arguments)])[0]
        make_folder(baseline_folder)
        write_json(baseline_folder / FILE, stored)
    files = {target: ModelFiles.from_json(each) for target, each in stored["anchors"].items()}
    return BaselineFiles(files, stored["accuracy"], _timing_protocol(plan, stored["input"]), stored.get("beside", {}))


def relative_limits(plan: Plan, targets: Sequence[str]) -> dict[str, RelativeLatencyLimit]:
    """The limits of these targets that refer to a reference model, by the sha256 of that model's file."""
    limits = plan.run.budget.latency_references(targets).values()
    return {limit.sha256: limit for limit in limits if limit.sha256 is not None}


def _timing_protocol(plan: Plan, sample: str) -> TimingProtocol:
    options: Any = plan.stages["benchmark"]
    return TimingProtocol(
        input=sample,
        rounds=options.rounds,
        calls_per_round=options.calls_per_round,
        warmup_per_round=options.warmup_per_round,
        confidence=options.confidence,
        limit_s=60 * options.most_minutes,
        threads=options.inference_threads,
    )


def _read_stored(path: Path) -> dict[str, Any] | None:
    try:
        stored: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        model_files = [ModelFiles.from_json(each) for each in stored["anchors"].values()]
        stored["accuracy"] = float(stored["accuracy"])
        needed_paths = [stored["input"]]
        if beside := stored.get("beside"):
            needed_paths += [beside["raw"], *(each["path"] for each in beside["files"].values())]
        is_intact = all(Path(each).is_file() for each in needed_paths) and all(
            content.is_intact() for content in model_files
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return stored if is_intact else None
