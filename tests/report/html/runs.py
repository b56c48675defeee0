"""Variations of the shared run: copies with other records, sealed like real ones."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.core import artifacts
from edgekit.core.artifacts import RECORD
from edgekit.core.config import Budget
from edgekit.core.hashing import digest, write_json
from edgekit.report import result
from edgekit.stages.benchmark.decision import decide
from edgekit.stages.benchmark.timings import Timings
from edgekit.workbook.plan import load_plan
from edgekit.workbook.run import write_result
from tests.conftest import TINY, FinishedRun


def copy(run: FinishedRun, out: Path) -> Path:
    """The run's folder, to do with as one likes; without `.training`, which nothing here reads."""
    return Path(shutil.copytree(run.folder, out / "tiny", ignore=shutil.ignore_patterns(".training")))


def edit(folder: Path, stage: str, change: Callable[[dict[str, Any]], None]) -> None:
    """Change a stage's metrics, which are no content, and write the result again."""
    path = folder / stage / RECORD
    fields = json.loads(path.read_text())
    change(fields["metrics"])
    kept = {name: value for name, value in fields.items() if name not in ("format", "record_sha256")}
    write_json(path, {**fields, "record_sha256": digest(kept)})
    old = json.loads((folder / result.RESULT).read_text())
    write_json(
        folder / result.RESULT, result.with_sources({**old, **result.build_result(folder, old["config"])}, folder)
    )


def missed(run: FinishedRun, out: Path) -> Path:
    """The same measurements with a budget that no variant meets, as a run of that budget would end."""
    folder = copy(run, out)
    shutil.rmtree(folder / "bundles")
    (folder / "notebooks/07_bundle.ipynb").unlink()
    built, samples_ms = (
        artifacts.load(folder / "benchmark"),
        dict(np.load(folder / "benchmark/evidence/samples_ms.npz")),
    )
    rounds = len(next(iter(samples_ms.values()))) // built.config["calls_per_round"]
    timings = Timings(samples_ms, rounds, built.config["confidence"], built.config["tie_margin"])
    plan = load_plan(TINY, ["budget.size_bytes=1000", "budget.latency_p50_ms=0.000001"])
    budget = Budget.model_validate(plan.run.budget.model_dump())
    baseline, *variants = built.metrics["variants"]
    zipped = {row["name"]: row["zipped_bytes"] for row in built.metrics["rows"][1:]}
    rows = [baseline, *({**row, "zipped_bytes": zipped[row["name"]]} for row in variants)]
    decided = decide(rows, timings, budget, built.config["targets"])
    working = artifacts.begin(folder / ".benchmark.partial")
    shutil.copytree(folder / "benchmark/evidence", working / "evidence", dirs_exist_ok=True)
    artifacts.seal(
        working,
        stage="benchmark",
        source=artifacts.load(folder / "convert"),
        data_digest=built.data_digest,
        config={**built.config, "budget": budget.model_dump()},
        metrics={**built.metrics, **decided.metrics},
    )
    artifacts.publish(working, folder / "benchmark")
    write_result(plan, folder)
    return folder
