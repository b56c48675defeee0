"""Loads: the winners and the baseline driven by LoadGen, each in a process of its own. Evidence, which decides nothing.

Other than the rounds, which time the model alone, a query goes from the raw sample to the answer.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import numpy as np

from edgekit.core.artifact import Artifact
from edgekit.core.config import Budget
from edgekit.core.rows.loads import LoadRate, LoadRun, Loads
from edgekit.data import Data
from edgekit.measure.load.launch import Job, Outcome, drive
from edgekit.measure.load.rate import TRIAL_QUERIES, Found
from edgekit.measure.load.scenarios import P99_BOUND_MS, SCENARIOS, Load, Result
from edgekit.measure.load.subjects import Words
from edgekit.stages.benchmark.config import Config

SAMPLES = 64
"""Of validation, asked for in random order."""
QUEUE = 10.0
"""How many times the budget's p50 a p99 may be: one worker that answers in a fixed time reaches that at four fifths of
what it could answer (the wait in an M/D/1 queue; Kleinrock, "Queueing Systems", 1975)."""


def bound_ms(config: Config) -> float:
    """What was asked for; else ten times the budget's p50; else what LoadGen itself would hold a server to."""
    return config.p99_bound_ms or _from_budget(config.budget) or P99_BOUND_MS


def driven(
    source: Artifact, data: Data, config: Config, baseline: str, winners: Iterable[str], winner: str | None
) -> Loads:
    """Every scenario for the baseline and each winner; the highest rate for the baseline and the overall `winner`."""
    bound = bound_ms(config)
    told: Loads = {
        "seconds": 0.0,
        "p99_bound_ms": bound,
        "loadgen": None,
        "runs": [],
        "rates": [],
        "failed": [],
    }
    if not config.load_s or winner is None:
        return told
    told["seconds"] = config.load_s
    with tempfile.TemporaryDirectory(prefix="edgekit-loads-") as folder:
        samples = Path(folder) / "samples.npy"
        np.save(samples, data.validation.x[:SAMPLES], allow_pickle=False)
        for name in (baseline, *sorted(set(winners))):
            words = _words(name, name == baseline, source, samples, config)
            outcome = drive(_job(words, config, bound, searched=name in (baseline, winner)))
            _tell(told, name, outcome)
    return told


def _from_budget(budget: Budget) -> float:
    return QUEUE * (budget.latency_p50_ms or 0.0)


def _words(name: str, is_baseline: bool, source: Artifact, samples: Path, config: Config) -> Words:
    shared = {"samples": str(samples), "threads": config.inference_threads}
    profile = source.ancestor("profile")
    if is_baseline:
        return Words("edgekit.measure.load.subjects:as_it_came", {"profile": str(profile.path.resolve()), **shared})
    spec = json.loads(profile.file("model/model.json").read_text())
    told = {"convert": str(source.path.resolve()), "name": name, "preprocess": spec["preprocess"]}
    return Words("edgekit.measure.load.subjects:variant", {**told, **shared})


def _job(words: Words, config: Config, bound: float, searched: bool) -> Job:
    common: dict[str, Any] = {
        "seconds": config.load_s,
        "p99_bound_ms": bound,
        "confidence": config.confidence,
        "seed": config.seed,
    }
    search = Load("server", queries=TRIAL_QUERIES, **common) if searched else None
    return Job(words, tuple(Load(scenario, **common) for scenario in SCENARIOS), search)


def _tell(told: Loads, name: str, outcome: Outcome) -> None:
    told["runs"] += [_run(name, result) for result in outcome.results]
    told["loadgen"] = next((result.loadgen["version"] for result in outcome.results), told["loadgen"])
    if outcome.found:
        told["rates"].append(_rate(name, outcome.found))
    if outcome.failed:
        told["failed"].append({"name": name, "reason": outcome.failed})


def _run(name: str, result: Result) -> LoadRun:
    row = {"name": name, **result.to_json()}
    for key, found in result.latency.items():
        row |= {f"{key}_ms": found.value_ms, f"{key}_low_ms": found.low_ms, f"{key}_high_ms": found.high_ms}
    kept = {key: value for key, value in row.items() if key not in ("latency", "loadgen", "p99_bound_ms")}
    return cast("LoadRun", kept)


def _rate(name: str, found: Found) -> LoadRate:
    row = found.to_json()
    return cast("LoadRate", {"name": name, **{key: value for key, value in row.items() if key != "p99_bound_ms"}})
