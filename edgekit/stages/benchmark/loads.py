"""The winners and the baseline under load by LoadGen, each in its own process. Evidence only: it decides nothing.

Unlike the rounds, which time the model alone, a query goes from the raw sample to the answer.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import numpy as np

from edgekit.core import progress
from edgekit.core.artifacts import Artifact
from edgekit.core.schema.loads import LoadRate, LoadRun, Loads
from edgekit.data import Data
from edgekit.measure import lane
from edgekit.measure.load.launcher import LoadJob, LoadOutcome, run_loads, why_unavailable
from edgekit.measure.load.rate_search import MIN_TRIAL_QUERIES, RateSearch
from edgekit.measure.load.scenarios import P99_BOUND_MS, SCENARIOS, Load, LoadResult
from edgekit.measure.load.subjects import SubjectSpec
from edgekit.stages.benchmark.config import BenchmarkConfig

SAMPLES = 64
"""Of validation, asked for in random order."""
QUEUE = 10.0
"""How many times the budget's p50 a p99 may be: one worker that answers in a fixed time reaches that at four fifths of
what it could answer (the wait in an M/D/1 queue; Kleinrock, "Queueing Systems", 1975)."""


def bound_ms(config: BenchmarkConfig) -> float:
    """What was asked for; else ten times the budget's p50; else what LoadGen itself would hold a server to."""
    return config.p99_bound_ms or _from_budget(config) or P99_BOUND_MS


def measure_loads(
    source: Artifact, data: Data, config: BenchmarkConfig, baseline: str, winners: Iterable[str], winner: str | None
) -> Loads:
    """Every scenario for the baseline and each winner; the highest rate for the baseline and the overall `winner`."""
    bound = bound_ms(config)
    record: Loads = {
        "seconds": 0.0,
        "p99_bound_ms": bound,
        "loadgen": None,
        "runs": [],
        "rates": [],
        "failed": [],
        "skipped": None,
    }
    if not config.load_s or winner is None:
        return record
    if reason := why_unavailable():
        return {**record, "skipped": reason}
    record["seconds"] = config.load_s
    with tempfile.TemporaryDirectory(prefix="edgekit-loads-") as folder, lane.measuring():
        samples = Path(folder) / "samples.npy"
        np.save(samples, data.validation.x[:SAMPLES], allow_pickle=False)
        models = [baseline, *sorted(set(winners))]
        for name in progress.track(models, "model", "load test of {}".format):
            subject = _subject(name, name == baseline, source, samples, config)
            outcome = run_loads(_job(subject, config, bound, searched=name in (baseline, winner)))
            _add(record, name, outcome)
    return record


def _from_budget(config: BenchmarkConfig) -> float:
    """Of this machine's limit, of several the largest; 0 where none is in milliseconds, or devices are held to it."""
    limits_ms = [config.budget.limits(target).latency_p50_ms or 0.0 for target in config.targets]
    return 0.0 if config.where else QUEUE * max(limits_ms, default=0.0)


def _subject(name: str, is_baseline: bool, source: Artifact, samples: Path, config: BenchmarkConfig) -> SubjectSpec:
    shared = {"samples": str(samples), "threads": config.inference_threads}
    profile = source.ancestor("profile")
    if is_baseline:
        return SubjectSpec(
            "edgekit.measure.load.subjects:open_baseline", {"profile": str(profile.path.resolve()), **shared}
        )
    spec = json.loads(profile.file("model/model.json").read_text(encoding="utf-8"))
    keywords = {"convert": str(source.path.resolve()), "name": name, "preprocess": spec["preprocess"]}
    return SubjectSpec("edgekit.measure.load.subjects:open_convert_variant", {**keywords, **shared})


def _job(subject: SubjectSpec, config: BenchmarkConfig, bound: float, searched: bool) -> LoadJob:
    common: dict[str, Any] = {
        "seconds": config.load_s,
        "p99_bound_ms": bound,
        "confidence": config.confidence,
        "seed": config.seed,
    }
    search = Load("server", queries=MIN_TRIAL_QUERIES, **common) if searched else None
    return LoadJob(subject, tuple(Load(scenario, **common) for scenario in SCENARIOS), search)


def _add(record: Loads, name: str, outcome: LoadOutcome) -> None:
    record["runs"] += [_run(name, result) for result in outcome.results]
    record["loadgen"] = next((result.loadgen["version"] for result in outcome.results), record["loadgen"])
    if outcome.search:
        record["rates"].append(_rate(name, outcome.search))
    if outcome.failed:
        record["failed"].append({"name": name, "reason": outcome.failed})


def _run(name: str, result: LoadResult) -> LoadRun:
    row = {"name": name, **result.to_json()}
    for key, found in result.latency.items():
        row |= {f"{key}_ms": found.value_ms, f"{key}_low_ms": found.low_ms, f"{key}_high_ms": found.high_ms}
    kept = {key: value for key, value in row.items() if key not in ("latency", "loadgen", "p99_bound_ms")}
    return cast("LoadRun", kept)


def _rate(name: str, found: RateSearch) -> LoadRate:
    row = found.to_json()
    return cast("LoadRate", {"name": name, **{key: value for key, value in row.items() if key != "p99_bound_ms"}})
