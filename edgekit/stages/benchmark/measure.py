"""Measure: every variant's answers on validation and test against the baseline's, and latency in interleaved rounds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from edgekit import artifact as artifacts
from edgekit import replay
from edgekit.artifact import Artifact
from edgekit.data import Data, Split
from edgekit.eager import eager_call, eager_input
from edgekit.models.handover import open_model
from edgekit.paired import compare
from edgekit.runner.backends import Backend
from edgekit.runner.bench import interleaved, machine
from edgekit.runner.preprocess import apply, to_layout
from edgekit.stages.benchmark import LIBRARIES, Config
from edgekit.stages.benchmark.decide import Decision, decide, too_close
from edgekit.stages.benchmark.rivals import held_against, open_rivals
from edgekit.stages.benchmark.timings import Timings
from edgekit.train import evaluate, predictions
from edgekit.variants import members, open_variant, read, zipped_bytes

BASELINE = "baseline-eager"
Row = dict[str, Any]


def benchmark(source: Artifact, data: Data, config: Config, out: Path) -> Artifact:
    """See `edgekit.stages.benchmark`."""
    artifacts.begin(out)
    rivals = open_rivals(config.rivals, data, config.inference_threads)
    rows, calls = _open_all(source, data, config)
    threads_before = torch.get_num_threads()
    torch.set_num_threads(config.inference_threads)
    try:
        calls |= {rival.name: rival.call for rival in rivals}
        decision, timings = _measured(rows, calls, config, replay.recorded(source.path.parent, "benchmark"))
    finally:
        torch.set_num_threads(threads_before)

    artifacts.write_json(out / "decision.json", decision.content)
    artifacts.write_json(out / artifacts.EVIDENCE / "decisions.json", decision.decisions)
    conditions = {
        **machine(),
        "threads": config.inference_threads,
        "protocol": (
            f"{timings.rounds} rounds, {config.calls_per_round} timed calls of each variant in a round after "
            f"{config.warmup_per_round} untimed ones, batch 1, order rotated, execute only (numpy in, numpy out)"
        ),
    }
    evidence = {"latency": timings.latencies, "conditions": conditions}
    artifacts.write_json(out / artifacts.EVIDENCE / "latency.json", evidence)
    np.savez(out / artifacts.EVIDENCE / "samples_ms.npz", allow_pickle=False, **timings.samples_ms)
    return artifacts.seal(
        out,
        stage="benchmark",
        source=source,
        data_digest=data.digest,
        config=config.model_dump(),
        metrics={
            **decision.metrics,
            "rivals": held_against(rivals, _row_of(decision.metrics["winner"], rows), timings),
            **evidence,
        },
        libraries=LIBRARIES,
    )


def _row_of(name: str | None, rows: list[Row]) -> Row | None:
    return next((row for row in rows if row["name"] == name), None)


def _measured(
    rows: list[Row], calls: dict[str, Callable[[], object]], config: Config, recorded: dict[str, Any] | None
) -> tuple[Decision, Timings]:
    """Round upon round until no winner is open: a tie for want of rounds would turn on a quieter day."""
    samples_ms: dict[str, np.ndarray] = {}
    rounds = 0
    while True:
        more_ms = interleaved(calls, config.rounds, config.calls_per_round, config.warmup_per_round)
        samples_ms = {name: np.concatenate([samples_ms.get(name, more_ms[name][:0]), more_ms[name]]) for name in calls}
        rounds += config.rounds
        timings = Timings(samples_ms, rounds, config.confidence, config.tie_margin)
        decision = decide(rows, timings, config.budget, config.targets, recorded)
        if rounds + config.rounds > config.most_rounds or not too_close(decision.decisions, config.tie_margin):
            return decision, timings


def _open_all(source: Artifact, data: Data, config: Config) -> tuple[list[Row], dict[str, Callable[[], object]]]:
    """A row of facts and a callable for the baseline in PyTorch eager and for every variant."""
    profile = source.ancestor("profile")
    baseline, spec = open_model(profile)
    prepared = apply(spec.preprocess, data.validation.x[:1])
    reference = predictions(baseline, data.validation.x, spec.preprocess) == data.validation.y
    rows: list[Row] = [
        {
            "name": BASELINE,
            "model": "baseline",
            "precision": "fp32",
            "method": "float",
            "target": "pytorch",
            "interpreter": f"torch {torch.__version__}",
            "bytes": profile.file("model/weights.safetensors").stat().st_size,
            "accuracy_validation": float(np.mean(reference)),
            "accuracy_test": evaluate(baseline, data.test, spec.preprocess),
        }
    ]
    calls: dict[str, Callable[[], object]] = {
        BASELINE: eager_call(baseline, eager_input(data.validation.x[:1], spec.preprocess).numpy())
    }
    for variant in read(source):
        backend = open_variant(source, variant, config.inference_threads)
        x = to_layout(prepared, variant.input.layout)
        right = _right(backend, data.validation, spec.preprocess, variant.input.layout)
        drop = compare(reference, right, config.budget.accuracy_confidence)
        rows.append(
            {
                "name": variant.name,
                "model": variant.model,
                "precision": variant.precision,
                "method": variant.method,
                "target": variant.target,
                "interpreter": f"{backend.name} {backend.version}",
                "bytes": variant.bytes,
                "float_ops": list(variant.float_ops),
                "debris": Counter(one["kind"] for one in variant.debris),
                "zipped_bytes": zipped_bytes(members(source, variant).values()),
                "accuracy_validation": float(np.mean(right)),
                "accuracy_test": float(np.mean(_right(backend, data.test, spec.preprocess, variant.input.layout))),
                "lost": drop.lost,
                "gained": drop.gained,
                "samples": drop.samples,
            }
        )
        calls[variant.name] = _call(backend, x)
    return rows, calls


def _call(backend: Backend, x: np.ndarray) -> Callable[[], object]:
    return lambda: backend.run(x)


def _right(backend: Backend, split: Split, preprocess: list[dict[str, Any]], layout: str) -> np.ndarray:
    """Whether each sample is answered rightly, (n,) bool; one by one at batch 1, as on the device."""
    answers = [int(backend.run(to_layout(apply(preprocess, sample[None]), layout)).argmax()) for sample in split.x]
    return np.equal(answers, split.y)
