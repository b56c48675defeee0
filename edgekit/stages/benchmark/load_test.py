"""Test the winners and the baseline under load with LoadGen, each in its own process.

The results are evidence only and decide nothing. A query includes everything from the raw sample to the answer, whereas
the rounds of timing cover the model alone.
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
"""Number of validation samples, which are requested in random order."""
P99_FACTOR = 10.0
"""The limit of the p99 as a multiple of the budget's p50. A single worker whose service time is constant and equal
to that p50 reaches this limit at about four fifths of its capacity (the waiting time in an M/D/1 queue; Kleinrock,
"Queueing Systems", 1975)."""


def p99_bound_ms(config: BenchmarkConfig) -> float:
    """Return the limit of the p99 in ms: that of the config, or ten times the budget's p50, or LoadGen's default."""
    return config.p99_bound_ms or _budget_bound_ms(config) or P99_BOUND_MS


def measure_loads(
    source: Artifact, data: Data, config: BenchmarkConfig, baseline: str, winners: Iterable[str], winner: str | None
) -> Loads:
    """Run all scenarios for the baseline and each winner.

    For the baseline and the overall `winner`, the highest sustainable rate is searched for as well.
    """
    bound = p99_bound_ms(config)
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
            outcome = run_loads(_load_job(subject, config, bound, has_rate_search=name in (baseline, winner)))
            _add_outcome(record, name, outcome)
    return record


def _budget_bound_ms(config: BenchmarkConfig) -> float:
    """Return ten times the largest latency limit, or 0 if no limit is in milliseconds or the limits are for devices."""
    limits_ms = [config.budget.limits(target).latency_p50_ms or 0.0 for target in config.targets]
    return 0.0 if config.where else P99_FACTOR * max(limits_ms, default=0.0)


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


def _load_job(subject: SubjectSpec, config: BenchmarkConfig, bound: float, has_rate_search: bool) -> LoadJob:
    common: dict[str, Any] = {
        "seconds": config.load_s,
        "p99_bound_ms": bound,
        "confidence": config.confidence,
        "seed": config.seed,
    }
    search = Load("server", queries=MIN_TRIAL_QUERIES, **common) if has_rate_search else None
    return LoadJob(subject, tuple(Load(scenario, **common) for scenario in SCENARIOS), search)


def _add_outcome(record: Loads, name: str, outcome: LoadOutcome) -> None:
    record["runs"] += [_run_row(name, result) for result in outcome.results]
    record["loadgen"] = next((result.loadgen["version"] for result in outcome.results), record["loadgen"])
    if outcome.search:
        record["rates"].append(_rate_row(name, outcome.search))
    if outcome.failed:
        record["failed"].append({"name": name, "reason": outcome.failed})


def _run_row(name: str, result: LoadResult) -> LoadRun:
    row = {"name": name, **result.to_json()}
    for key, percentile in result.latency.items():
        row |= {
            f"{key}_ms": percentile.value_ms,
            f"{key}_low_ms": percentile.low_ms,
            f"{key}_high_ms": percentile.high_ms,
        }
    fields = {key: value for key, value in row.items() if key not in ("latency", "loadgen", "p99_bound_ms")}
    return cast("LoadRun", fields)


def _rate_row(name: str, search: RateSearch) -> LoadRate:
    row = search.to_json()
    return cast("LoadRate", {"name": name, **{key: value for key, value in row.items() if key != "p99_bound_ms"}})
