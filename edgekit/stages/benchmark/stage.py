"""Measure: every variant's answers on validation and test against the baseline's, and latency in interleaved rounds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from edgekit.core import artifacts, progress, replay, tasks
from edgekit.core.artifacts import Artifact
from edgekit.core.schema.variants import BaselineFacts, ModelFacts, SeenValidation, VariantFacts
from edgekit.core.tasks import SampleResults, SampleScores
from edgekit.core.variants import Variant, open_variant, read_model_files, read_variants, variant_call, zipped_size
from edgekit.data import Data, Split
from edgekit.device.measure import conditions
from edgekit.device.measure.bench import machine_facts
from edgekit.device.measure.execution import EXECUTED
from edgekit.fleet.devices.benchmark_hosts import hosts_of_class
from edgekit.measure import lane
from edgekit.models import baseline as baselines
from edgekit.models import store
from edgekit.models.eager import eager_input
from edgekit.models.from_artifact import open_model
from edgekit.runner.backends import Backend
from edgekit.runner.preprocess.transform import apply, to_layout
from edgekit.stages.benchmark import devices
from edgekit.stages.benchmark.config import LIBRARIES, BenchmarkConfig
from edgekit.stages.benchmark.cost import measure_costs, source_of
from edgekit.stages.benchmark.decide import check_all
from edgekit.stages.benchmark.evidence import break_down, shown, write_evidence, write_examples
from edgekit.stages.benchmark.leakage import check_leakage, seen_by_teacher
from edgekit.stages.benchmark.loads import measure_loads
from edgekit.stages.benchmark.rivals import compare_with, open_rivals
from edgekit.stages.benchmark.rounds import Opener, measured
from edgekit.stages.benchmark.timings import Timings
from edgekit.training import predict
from edgekit.training.predict import check_finite

EAGER, UNMODIFIED = "baseline-eager", "baseline-unmodified"
"""Names of the baseline: a PyTorch network, and a file on its own interpreter."""


def benchmark(source: Artifact, data: Data, config: BenchmarkConfig, out: Path) -> Artifact:
    """See `edgekit.stages.benchmark`."""
    artifacts.begin(out)
    recorded = replay.read(source.path.parent, "benchmark")
    if config.where and recorded is None:
        hosts_of_class(config.hosts, config.where)  # a fault in there is better told before minutes of work
    energy = source_of(config.cost)  # a fault in there as well
    rivals = open_rivals(config.rivals, data, config.inference_threads)
    seen_by_others = [seen_by_teacher(source, data, config.threads), *(rival.seen for rival in rivals)]
    evaluated = _evaluate_all(source, data, config)
    rows, openers, answers = evaluated.rows, evaluated.openers, evaluated.answers
    threads_before = torch.get_num_threads()
    torch.set_num_threads(config.inference_threads)
    try:
        on_devices = _on_devices(source, data, config, rows) if recorded is None else None
        openers |= {rival.name: rival.open for rival in rivals}
        deciding = on_devices.deciding if on_devices else None
        with lane.measuring():
            with conditions.ConditionsRecorder() as watch:
                decision, timings, stayed_open = measured(rows, openers, config, watch, recorded, deciding)
            names = [row["name"] for row in rows]
            costs = measure_costs(names, openers, timings, energy, config.cost.energy_s)
    finally:
        torch.set_num_threads(threads_before)
    won = decision.metrics["winner"]
    breakdown = break_down(data.task, data.validation.y, data.classes, answers, shown(decision.metrics))
    loads = measure_loads(source, data, config, rows[0]["name"], decision.metrics["winners"].values(), won)

    artifacts.write_json(out / "decision.json", decision.content)
    artifacts.write_json(out / artifacts.EVIDENCE / "decisions.json", decision.decisions)
    stayed_open = [*(on_devices.stayed_open if on_devices else []), *stayed_open]
    seen = {**_conditions(watch, rows, timings, config), "stayed_open": stayed_open}
    evidence = {"latency": timings.latencies, "conditions": seen}
    artifacts.write_json(out / artifacts.EVIDENCE / "latency.json", evidence)
    artifacts.write_json(out / artifacts.EVIDENCE / "loads.json", loads)
    artifacts.write_json(out / artifacts.EVIDENCE / "cost.json", costs)
    np.savez(out / artifacts.EVIDENCE / "samples_ms.npz", allow_pickle=False, **timings.samples_ms)
    np.savez(out / artifacts.EVIDENCE / "cpu_ms.npz", allow_pickle=False, **timings.cpu_ms)
    if on_devices and on_devices.samples_ms:
        np.savez(out / artifacts.EVIDENCE / "devices_ms.npz", allow_pickle=False, **on_devices.samples_ms)
    write_evidence(out, data, answers, breakdown.places)
    write_examples(out, data, answers, shown(decision.metrics))
    return artifacts.seal(
        out,
        stage="benchmark",
        source=source,
        data_digest=data.digest,
        config=config.model_dump(),
        metrics={
            **decision.metrics,
            "rivals": compare_with(rivals, _row_of(won, rows), timings),
            "loads": loads,
            "cost": costs,
            "seen_validation": evaluated.seen,
            "others_seen_validation": [each for each in seen_by_others if each is not None],
            "by_class": breakdown.by_class,
            "confusion": breakdown.confusion,
            "lost": {**breakdown.lost, "kind": data.kind},
            **evidence,
        },
        libraries=LIBRARIES,
    )


def _on_devices(
    source: Artifact, data: Data, config: BenchmarkConfig, rows: Sequence[ModelFacts]
) -> devices.Timed | None:
    """What devices have measured; None where this machine decides."""
    if not config.where:
        return None
    checked = check_all(rows[1:], config.budget)
    spec = store.read_spec(source.ancestor("profile").file("model/model.json").parent)
    return devices.time_on_devices(checked, read_variants(source), source, spec, data, config)


def _conditions(
    watch: conditions.ConditionsRecorder, rows: Sequence[ModelFacts], timings: Timings, config: BenchmarkConfig
) -> dict[str, Any]:
    """Where, how and beside what else it was measured; as noisy as half of the variants are at most."""
    rounds = [len(each) // config.calls_per_round for each in timings.samples_ms.values()]
    openings = [timings.rounds_of(name) for name in timings.samples_ms]
    noises = map(conditions.noise, timings.samples_ms.values(), openings)
    spread = float(np.median(list(noises)))
    return {
        **machine_facts(),
        "threads": config.inference_threads,
        "calls_per_round": config.calls_per_round,
        "warmup_per_round": config.warmup_per_round,
        "interpreters": {name: version for name, _, version in (row["interpreter"].partition(" ") for row in rows)},
        "protocol": protocol(rounds, openings, config.calls_per_round, config.warmup_per_round),
        **conditions.to_record(watch.result(spread)),
    }


def protocol(rounds: Sequence[int], openings: Sequence[int], calls_per_round: int, warmup_per_round: int) -> str:
    """How it was measured, in words; the counts are of one variant each."""
    return (
        f"{_span(rounds)} rounds, {calls_per_round} timed calls of each variant in a round after {warmup_per_round} "
        f"untimed ones, each opened anew {_span(openings)} times, batch 1, order rotated, {EXECUTED}"
    )


def _span(counts: Sequence[int]) -> str:
    """The least and the most; the variants of comparisons that were open have more."""
    least, most = min(counts), max(counts)
    return f"{least}" if least == most else f"{least} to {most}"


def _row_of(name: str | None, rows: Sequence[ModelFacts]) -> ModelFacts | None:
    return next((row for row in rows if row["name"] == name), None)


@dataclass(frozen=True)
class Evaluated:
    """What is known before anything is timed, of the baseline first and then of every variant.

    A row of facts each, what opens each for calls, and what each says of validation. `seen` tells whether the baseline
    knows validation (`leakage.py`), if it was trained elsewhere.
    """

    rows: list[ModelFacts]
    openers: dict[str, Opener]
    answers: dict[str, np.ndarray]
    seen: SeenValidation | None


def _evaluate_all(source: Artifact, data: Data, config: BenchmarkConfig) -> Evaluated:
    profile = source.ancestor("profile")
    baseline, spec = open_model(profile)
    prepared = apply(spec.preprocess, data.validation.x[:1])
    said, reference = _score(predict.logits(baseline, data.validation.x, spec.preprocess), data.validation, spec)
    test = _score(predict.logits(baseline, data.test.x, spec.preprocess), data.test, spec)[1]
    name = EAGER if spec.is_torch else UNMODIFIED
    answers = {name: said}
    before: BaselineFacts = {
        "name": name,
        "model": "baseline",
        "precision": "fp32",
        "method": "float",
        "target": "pytorch",
        "interpreter": spec.interpreter,
        "bytes": store.weight_bytes(profile.path / "model"),
        **_accuracies(reference, test),  # type: ignore[typeddict-item]
    }
    rows: list[ModelFacts] = [before]
    x = eager_input(data.validation.x[:1], spec.preprocess).numpy()
    opener = baselines.opener(profile.path / "model", baseline, spec, x, config.inference_threads)
    openers: dict[str, Opener] = {name: opener}
    for variant in progress.track(read_variants(source), "variant", lambda variant: f"evaluating {variant.name}"):
        backend = open_variant(source, variant, config.inference_threads)
        x = to_layout(prepared, variant.input.layout)
        answers[variant.name], found = _evaluate(backend, variant, data.validation, spec)
        drop = tasks.drop(reference, found, config.budget.accuracy_confidence)
        row = {
            "name": variant.name,
            "model": variant.model,
            "precision": variant.precision,
            "method": variant.method,
            "target": variant.target,
            "interpreter": f"{backend.name} {backend.version}",
            "bytes": variant.bytes,
            "float_ops": list(variant.float_ops),
            "debris": Counter(one["kind"] for one in variant.debris),
            "zipped_bytes": zipped_size(read_model_files(source, variant).values()),
            **_accuracies(found, _evaluate(backend, variant, data.test, spec)[1]),
            **asdict(drop),
        }
        rows.append(cast("VariantFacts", row))
        openers[variant.name] = partial(variant_call, source, variant, x, config.inference_threads)
    elsewhere = spec.source is not None or source.ancestor("origin").config["weights"] is not None
    seen = check_leakage(spec.called, "baseline", reference, test) if elsewhere else None
    return Evaluated(rows, openers, answers, seen)


def _accuracies(validation: SampleResults, test: SampleResults) -> dict[str, Any]:
    """The fields of a row of facts."""
    found: dict[str, Any] = {"accuracy_validation": tasks.accuracy(validation), "accuracy_test": tasks.accuracy(test)}
    if (
        (second := tasks.second_metric(validation))
        and isinstance(validation, SampleScores)
        and isinstance(test, SampleScores)
    ):
        both = {"validation": second.compute(validation), "test": second.compute(test)}
        found["second_accuracy"] = {"metric": second.metric, **both}
    return found


def _evaluate(
    backend: Backend, variant: Variant, split: Split, spec: store.ModelSpec
) -> tuple[np.ndarray, SampleResults]:
    """What it says of each sample, and how right that is; one by one at batch 1, as on the device."""
    layout = variant.input.layout
    outputs = [backend.run(to_layout(apply(spec.preprocess, sample[None]), layout)) for sample in split.x]
    what = f"benchmark: {variant.name}"
    fix = f"leave {variant.precision} out of convert.precisions, or normalise the input by a preprocess step"
    return _score(check_finite(np.concatenate(outputs), what, fix), split, spec)


def _score(outputs: np.ndarray, split: Split, spec: store.ModelSpec) -> tuple[np.ndarray, SampleResults]:
    kind = tasks.load_task(spec.task)
    inputs = predict.inputs_for(spec.task, split.x, spec.preprocess)
    return kind.answers(outputs, inputs), kind.score_samples(outputs, inputs, split.y)
