"""Run the benchmark stage: compare all variants' answers with the baseline's, and time them in interleaved rounds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from edgekit.core import artifacts, progress, replay, tasks
from edgekit.core.artifacts import Artifact
from edgekit.core.config import available_cores
from edgekit.core.execution import EXECUTED
from edgekit.core.schema.variants import BaselineFacts, ModelFacts, SeenValidation, VariantFacts
from edgekit.core.tasks import SampleResults, SampleScores
from edgekit.core.tasks.accuracy_interval import CONFIDENCE, accuracy_interval, has_quick_interval
from edgekit.core.variants import Variant, open_variant, read_model_files, read_variants, variant_call, zipped_size
from edgekit.data import Data, Split
from edgekit.device.measure import conditions
from edgekit.device.measure.bench import machine_facts
from edgekit.fleet.devices.benchmark_hosts import hosts_of_class
from edgekit.measure import lane
from edgekit.models import baseline as baselines
from edgekit.models import store
from edgekit.models.eager import eager_input
from edgekit.models.from_artifact import open_model
from edgekit.runner.backends import Backend
from edgekit.runner.preprocess.transform import apply, to_layout
from edgekit.stages.benchmark import devices
from edgekit.stages.benchmark.branches import branch_losses
from edgekit.stages.benchmark.config import LIBRARIES, BenchmarkConfig
from edgekit.stages.benchmark.cost import energy_source, measure_costs
from edgekit.stages.benchmark.decision import check_all_limits
from edgekit.stages.benchmark.evidence import break_down, shipped_variants, write_evidence, write_examples
from edgekit.stages.benchmark.leakage import check_leakage, check_teacher
from edgekit.stages.benchmark.load_test import measure_loads
from edgekit.stages.benchmark.reference_models import compare_with_winner, open_reference_models
from edgekit.stages.benchmark.rounds import Opener, measure_rounds
from edgekit.stages.benchmark.timings import Timings
from edgekit.training import predict
from edgekit.training.predict import check_finite

EAGER, UNMODIFIED = "baseline-eager", "baseline-unmodified"
"""The name of the baseline: `EAGER` if it is a PyTorch network, `UNMODIFIED` if it is a model file, which has an
interpreter of its own."""
ENDS = ("low", "high")
"""The names of the ends of an interval."""


def benchmark(source: Artifact, data: Data, config: BenchmarkConfig, out: Path) -> Artifact:
    """Run the benchmark stage; see `edgekit.stages.benchmark`."""
    artifacts.begin(out)
    recorded = replay.read(source.path.parent, "benchmark")
    if config.where and recorded is None:
        hosts_of_class(config.hosts, config.where)  # so that an error appears before minutes of work
    energy_meter = energy_source(config.cost)  # its errors, too, appear before minutes of work
    reference_models = open_reference_models(config.rivals, data, config.inference_threads)
    others_leakage = [check_teacher(source, data, config.threads), *(model.leakage for model in reference_models)]
    evaluation = _evaluate_all(source, data, config)
    rows, openers, answers = evaluation.rows, evaluation.openers, evaluation.answers
    spec = store.read_spec(source.ancestor("profile").file("model/model.json").parent)
    branches = branch_losses(source, rows, data.validation, spec, config.budget, config.inference_threads)
    threads_before = torch.get_num_threads()
    torch.set_num_threads(config.inference_threads)
    try:
        device_timings = _time_on_devices(source, data, config, rows) if recorded is None else None
        openers |= {model.name: model.open for model in reference_models}
        deciding = device_timings.deciding if device_timings else None
        with lane.measuring():
            with conditions.ConditionsRecorder() as recorder:
                decision, timings, stayed_open = measure_rounds(rows, openers, config, recorder, recorded, deciding)
            names = [row["name"] for row in rows]
            costs = measure_costs(names, openers, timings, energy_meter, config.cost.energy_s)
    finally:
        torch.set_num_threads(threads_before)
    winner = decision.metrics["winner"]
    breakdown = break_down(data.task, data.validation.y, data.classes, answers, shipped_variants(decision.metrics))
    loads = measure_loads(source, data, config, rows[0]["name"], decision.metrics["winners"].values(), winner)

    artifacts.write_json(out / "decision.json", decision.content)
    artifacts.write_json(out / artifacts.EVIDENCE / "decisions.json", decision.decisions)
    stayed_open = [*(device_timings.stayed_open if device_timings else []), *stayed_open]
    conditions_record = {**_conditions(recorder, rows, timings, config), "stayed_open": stayed_open}
    evidence = {"latency": timings.latencies, "conditions": conditions_record}
    artifacts.write_json(out / artifacts.EVIDENCE / "latency.json", evidence)
    artifacts.write_json(out / artifacts.EVIDENCE / "loads.json", loads)
    artifacts.write_json(out / artifacts.EVIDENCE / "cost.json", costs)
    np.savez(out / artifacts.EVIDENCE / "samples_ms.npz", allow_pickle=False, **timings.samples_ms)
    np.savez(out / artifacts.EVIDENCE / "cpu_ms.npz", allow_pickle=False, **timings.cpu_ms)
    if device_timings and device_timings.samples_ms:
        np.savez(out / artifacts.EVIDENCE / "devices_ms.npz", allow_pickle=False, **device_timings.samples_ms)
    write_evidence(out, data, answers, breakdown.indices)
    write_examples(out, data, answers, shipped_variants(decision.metrics))
    return artifacts.seal(
        out,
        stage="benchmark",
        source=source,
        data_digest=data.digest,
        config=config.model_dump(),
        metrics={
            **decision.metrics,
            "rivals": compare_with_winner(reference_models, _row_named(winner, rows), timings),
            "loads": loads,
            "cost": costs,
            "seen_validation": evaluation.leakage,
            "others_seen_validation": [each for each in others_leakage if each is not None],
            "by_class": breakdown.by_class,
            "confusion": breakdown.confusion,
            "lost": {**breakdown.lost, "kind": data.kind},
            **({"branches": branches} if branches else {}),
            **evidence,
        },
        libraries=LIBRARIES,
    )


def _time_on_devices(
    source: Artifact, data: Data, config: BenchmarkConfig, rows: Sequence[ModelFacts]
) -> devices.DeviceTimings | None:
    """Return the timings of devices, or None if the latencies of this machine decide."""
    if not config.where:
        return None
    checked = check_all_limits(rows[1:], config.budget)
    spec = store.read_spec(source.ancestor("profile").file("model/model.json").parent)
    return devices.time_on_devices(checked, read_variants(source), source, spec, data, config)


def _conditions(
    recorder: conditions.ConditionsRecorder, rows: Sequence[ModelFacts], timings: Timings, config: BenchmarkConfig
) -> dict[str, Any]:
    """Return the record of the machine, the protocol and the noise, which is the median noise of the variants."""
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
        **conditions.to_record(recorder.result(spread)),
    }


def protocol(rounds: Sequence[int], openings: Sequence[int], calls_per_round: int, warmup_per_round: int) -> str:
    """Describe how latencies were measured; `rounds` and `openings` have one number for each variant."""
    return (
        f"{_span(rounds)} rounds, {calls_per_round} timed calls of each variant in a round after {warmup_per_round} "
        f"untimed ones, each opened anew {_span(openings)} times, batch 1, order rotated, {EXECUTED}"
    )


def _span(counts: Sequence[int]) -> str:
    """Return the smallest and the largest count as text, or the one count if all are equal.

    They differ if rounds were added for variants whose comparison was not settled at first.
    """
    smallest, largest = min(counts), max(counts)
    return f"{smallest}" if smallest == largest else f"{smallest} to {largest}"


def _row_named(name: str | None, rows: Sequence[ModelFacts]) -> ModelFacts | None:
    return next((row for row in rows if row["name"] == name), None)


@dataclass(frozen=True)
class Evaluation:
    """What is known about the baseline and every variant before anything is timed.

    `rows` has the facts about each model, `openers` has a function by name that opens the model for calls, and
    `answers` has the answers to the validation samples by name. In each of the three, the baseline comes first.
    `leakage` says whether a baseline that was trained elsewhere has seen validation (`leakage.py`).
    """

    rows: list[ModelFacts]
    openers: dict[str, Opener]
    answers: dict[str, np.ndarray]
    leakage: SeenValidation | None


def _evaluate_all(source: Artifact, data: Data, config: BenchmarkConfig) -> Evaluation:
    profile, variants = source.ancestor("profile"), read_variants(source)
    spec = store.read_spec(profile.path / "model")
    with ThreadPoolExecutor(available_cores()) as pool:
        # nothing is timed here, and interpreters compute without holding Python's lock
        evaluate = partial(_evaluate_variant, source, data=data, spec=spec, threads=config.inference_threads)
        return _compare_all(source, data, config, variants, pool.map(evaluate, variants))


def _compare_all(
    source: Artifact,
    data: Data,
    config: BenchmarkConfig,
    variants: Sequence[Variant],
    evaluated: Iterator[tuple[dict[str, Any], np.ndarray, SampleResults]],
) -> Evaluation:
    """Evaluate the baseline, and compare each variant with it when its evaluation has ended."""
    profile = source.ancestor("profile")
    baseline, spec = open_model(profile)
    baseline_answers, baseline_scores = _score(
        predict.logits(baseline, data.validation.x, spec.preprocess), data.validation, spec
    )
    baseline_test_scores = _score(predict.logits(baseline, data.test.x, spec.preprocess), data.test, spec)[1]
    name = EAGER if spec.is_torch else UNMODIFIED
    answers = {name: baseline_answers}
    baseline_row: BaselineFacts = {
        "name": name,
        "model": "baseline",
        "precision": "fp32",
        "method": "float",
        "target": "pytorch",
        "interpreter": spec.interpreter,
        "bytes": store.weight_bytes(profile.path / "model"),
        **_accuracies(baseline_scores, baseline_test_scores),  # type: ignore[typeddict-item]
    }
    x = eager_input(data.validation.x[:1], spec.preprocess).numpy()
    opener = baselines.opener(profile.path / "model", baseline, spec, x, config.inference_threads)
    prepared = apply(spec.preprocess, data.validation.x[:1])
    rows: list[ModelFacts] = [baseline_row]
    openers: dict[str, Opener] = {name: opener}
    with progress.step("evaluating", "variants", len(variants)) as step:
        for variant, (facts, variant_answers, scores) in zip(variants, evaluated, strict=True):
            drop = tasks.drop(baseline_scores, scores, config.budget.accuracy_confidence)
            rows.append(cast("VariantFacts", {**facts, **asdict(drop)}))
            answers[variant.name] = variant_answers
            x = to_layout(prepared, variant.input.layout)
            openers[variant.name] = partial(variant_call, source, variant, x, config.inference_threads)
            step.update(len(rows) - 1)
    was_trained_elsewhere = spec.source is not None or source.ancestor("origin").config["weights"] is not None
    leakage = (
        check_leakage(spec.called, "baseline", baseline_scores, baseline_test_scores) if was_trained_elsewhere else None
    )
    return Evaluation(rows, openers, answers, leakage)


def _evaluate_variant(
    source: Artifact, variant: Variant, *, data: Data, spec: store.ModelSpec, threads: int
) -> tuple[dict[str, Any], np.ndarray, SampleResults]:
    """Return the facts about a variant, its answers to validation, and the results that its accuracy is made from."""
    backend = open_variant(source, variant, threads)
    answers, scores = _evaluate(backend, variant, data.validation, spec)
    facts = {
        "name": variant.name,
        "model": variant.model,
        "precision": variant.precision,
        "method": variant.method,
        "target": variant.target,
        "interpreter": f"{backend.name} {backend.version}",
        "bytes": variant.bytes,
        "float_ops": list(variant.float_ops),
        "debris": Counter(operator["kind"] for operator in variant.debris),
        "zipped_bytes": zipped_size(read_model_files(source, variant).values()),
        **_accuracies(scores, _evaluate(backend, variant, data.test, spec)[1]),
    }
    return facts, answers, scores


def _accuracies(validation: SampleResults, test: SampleResults) -> dict[str, Any]:
    """Return the accuracies as fields of a row of facts."""
    fields: dict[str, Any] = {"accuracy_validation": tasks.accuracy(validation), "accuracy_test": tasks.accuracy(test)}
    if (
        (second := tasks.second_metric(validation))
        and isinstance(validation, SampleScores)
        and isinstance(test, SampleScores)
    ):
        values = {"validation": second.compute(validation), "test": second.compute(test)}
        fields["second_accuracy"] = {"metric": second.metric, **values}
    if has_quick_interval(test):
        bounds = {"validation": accuracy_interval(validation, CONFIDENCE), "test": accuracy_interval(test, CONFIDENCE)}
        fields["accuracy_interval"] = {
            "confidence": CONFIDENCE,
            **{f"{split}_{end}": each for split, both in bounds.items() for end, each in zip(ENDS, both, strict=True)},
        }
    return fields


def _evaluate(
    backend: Backend, variant: Variant, split: Split, spec: store.ModelSpec
) -> tuple[np.ndarray, SampleResults]:
    """Return a variant's answers, with one sample per call as on the device, and the results that its accuracy is
    computed from."""
    layout = variant.input.layout
    outputs = [backend.run(to_layout(apply(spec.preprocess, sample[None]), layout)) for sample in split.x]
    subject = f"benchmark: {variant.name}"
    fix = f"leave {variant.precision} out of convert.precisions, or normalise the input with a preprocess step"
    return _score(check_finite(np.concatenate(outputs), subject, fix), split, spec)


def _score(outputs: np.ndarray, split: Split, spec: store.ModelSpec) -> tuple[np.ndarray, SampleResults]:
    task_module = tasks.load_task(spec.task)
    inputs = predict.inputs_for(spec.task, split.x, spec.preprocess)
    return task_module.answers(outputs, inputs), task_module.score_samples(outputs, inputs, split.y)
