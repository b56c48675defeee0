"""Run the bundle stage: pack the winner of each target with everything that it needs to run and to test itself."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.core import artifacts, golden, progress, tasks
from edgekit.core.artifacts import Artifact
from edgekit.core.config import STAGES
from edgekit.core.errors import BudgetMissed
from edgekit.core.pretrained import recorded_weights
from edgekit.core.schema.streams import StreamResult
from edgekit.core.tasks import anomaly
from edgekit.core.variants import Variant, open_variant, read_model_files, read_variants
from edgekit.data import Data
from edgekit.device import pyz
from edgekit.device.monitor import reference
from edgekit.models import store
from edgekit.runner import bundle as bundles
from edgekit.runner.boxes import BoxOptions
from edgekit.runner.bundle.manifest import Manifest, RawSpec
from edgekit.runner.preprocess.transform import apply, to_layout
from edgekit.stages.bundle import provenance, streams
from edgekit.stages.bundle.config import LIBRARIES, BundleConfig
from edgekit.stages.bundle.device import RUNNER, commands, requirements, run_selftest, text_members
from edgekit.stages.bundle.streams import stream_summary
from edgekit.training.predict import EVALUATION_BATCH, prepared_inputs

MAX_REFERENCE_SAMPLES = 10_000
"""Largest number of validation samples from which a bundle's reference for the monitor is built."""
ACTIVATIONS = {
    "classification": "softmax",
    "multi_label": "sigmoid",
    "regression": "none",
    "anomaly": "none",
    "detection": "sigmoid",
    "keypoints": "sigmoid",
    "instance_masks": "sigmoid",
    "segmentation": "none",
    "embedding": "none",
}


def bundle(source: Artifact, data: Data, config: BundleConfig, out: Path) -> Artifact:
    """Run the bundle stage; see `edgekit.stages.bundle`."""
    artifacts.begin(out)
    convert = source.ancestor("convert")
    decision = json.loads(source.file("decision.json").read_text(encoding="utf-8"))
    variants = {variant.name: variant for variant in read_variants(convert)}
    winners = decision["measured"]["winners"]
    if not winners:
        raise BudgetMissed(
            "no variant met the budget in notebook 06, so there is nothing to bundle; see the nearest miss there"
        )
    streams.check_options(data, config)
    runner_sha256 = pyz.build(out / RUNNER)
    packed = {
        target: _pack(source, convert, variants[winners[target]], data, config, out)
        for target in progress.track(list(winners), "bundle", "packing {}".format)
    }
    with progress.step("writing the software bill of materials (SBOM)"):
        provenance.write_sbom(out, recorded_weights(each.config for each in _chain(source)))
    selftests = {
        target: run_selftest(out / RUNNER, out / packed[target]["file"])
        for target in progress.track(list(packed), "self-test", "running the bundle for {} in a fresh process".format)
    }
    stream_results = {target: result for target, entry in packed.items() if (result := entry.pop("stream")) is not None}
    content = {"bundles": packed, "runner_sha256": runner_sha256, "streams": stream_results}
    artifacts.write_json(out / "decision.json", content)
    artifacts.write_json(out / artifacts.EVIDENCE / "selftest.json", selftests)
    return artifacts.seal(
        out,
        stage="bundle",
        source=source,
        data_digest=data.digest,
        config=config.model_dump(),
        metrics={
            "bundles": packed,
            "selftest": selftests,
            "runner_bytes": (out / RUNNER).stat().st_size,
            "streams": stream_results,
        },
        libraries=LIBRARIES,
    )


def _pack(
    source: Artifact, convert: Artifact, variant: Variant, data: Data, config: BundleConfig, out: Path
) -> dict[str, Any]:
    spec = store.read_spec(source.ancestor("profile").file("model/model.json").parent)
    files = {f"model/{name}": content for name, content in read_model_files(convert, variant).items()}
    raw, scores = _golden_answers(convert, variant, data, config, spec)
    row = next(
        row
        for row in json.loads(source.file("decision.json").read_text(encoding="utf-8"))["variants"]
        if row["name"] == variant.name
    )
    tolerance = config.golden_tolerance_int8 if variant.uses_integers else config.golden_tolerance_float
    manifest = Manifest(
        name=config.name,
        version=config.version,
        target=variant.target,
        variant=variant.name,
        raw=RawSpec(**spec.raw),
        inputs=variant.inputs,
        outputs=variant.outputs,
        preprocess=spec.preprocess,
        labels=[] if spec.task == "embedding" else list(spec.classes),
        model_files=sorted(files),
        golden={
            "inputs": golden.INPUTS,
            "outputs": golden.OUTPUTS,
            "atol": golden.tolerance(scores, tolerance),
            "top1": spec.task == "classification",
        },
        budget=config.budget.for_target(variant.target).model_dump(),
        # Latencies are valid for one machine on one day, so they are in the run's result.json, not in the bundle.
        verdict={
            "met": row["inside_budget"],
            "drop_validation_pp": row["drop_pp"],
            "bound_validation_pp": row["bound_pp"],
            "accuracy_validation": row["accuracy_validation"],
            "accuracy_test": row["accuracy_test"],
            "bytes": row["bytes"],
        },
        provenance=provenance_of(source, config),
        requirements=requirements(variant.target),
        task=spec.task,
        activation="none" if variant.model == "baseline" and spec.gives_probabilities else ACTIVATIONS[spec.task],
        threshold=_threshold(convert, variant, data, config, spec) if spec.task == "anomaly" else None,
        boxes=_box_options(convert, variant, data, spec) if spec.task in tasks.BOX_TASKS else None,
        head=variant.head,
        keypoints=data.keypoints.to_dict() if data.keypoints else None,
    )
    manifest = replace(manifest, reference=reference.MEMBER)
    stream = _evaluate_stream(convert, variant, data, config, spec, manifest)
    manifest = replace(manifest, smoothing=_declared_smoothing(stream, config))
    name = f"{config.name}-{variant.target}-{config.version}.edge.zip"
    content = {
        **files,
        **data.members,
        **golden.golden_files(raw, scores),
        reference.MEMBER: _monitor_reference(convert, variant, data, spec, manifest),
        **text_members(
            manifest, name, [*_readme_facts(row, tasks.load_task(spec.task).METRIC), *stream_summary(stream)]
        ),
    }
    sha256 = bundles.write(out / name, manifest, content)
    return {
        "file": name,
        "sha256": sha256,
        "bytes": (out / name).stat().st_size,
        "variant": variant.name,
        "commands": commands(name, variant.target, manifest.raw),
        "stream": stream,
    }


def provenance_of(source: Artifact, config: BundleConfig) -> dict[str, Any]:
    """Return the provenance of the bundles that are made from `source` with `config`."""
    decisions = provenance.measured_decisions(source)
    return provenance.provenance_record(_chain(source), "bundle", config.model_dump(), decisions)


def _chain(source: Artifact) -> list[Artifact]:
    """Return the artifacts from which bundles are made, the origin first."""
    return [artifact for stage in ("origin", *STAGES) if (artifact := source.find_ancestor(stage))]


def _golden_answers(
    convert: Artifact, variant: Variant, data: Data, config: BundleConfig, spec: store.ModelSpec
) -> tuple[np.ndarray, np.ndarray]:
    """Return raw samples (n, *raw) spread over the validation split, and the outputs (n, …) of `variant` for them."""
    positions = golden.candidate_indices(len(data.validation.y), config.golden_samples)
    raw = np.asarray(data.validation.x[positions])
    scores = _outputs(convert, variant, raw, spec)
    if spec.task == "classification":
        chosen = golden.clearest_indices(scores, config.golden_samples)
    else:
        chosen = np.sort(golden.evenly_spaced_indices(len(raw), config.golden_samples))
    return raw[chosen], scores[chosen]


def _outputs(convert: Artifact, variant: Variant, raw: np.ndarray, spec: store.ModelSpec) -> np.ndarray:
    backend, layout = open_variant(convert, variant), variant.input.layout
    return np.concatenate([backend.run(to_layout(apply(spec.preprocess, sample[None]), layout)) for sample in raw])


def _threshold(convert: Artifact, variant: Variant, data: Data, config: BundleConfig, spec: store.ModelSpec) -> float:
    """Return the score that only the share `false_alarms` of the normal validation samples exceeds."""
    indices = np.flatnonzero(data.validation.y == 0)
    scores = []
    for start in range(0, len(indices), EVALUATION_BATCH):  # the outputs are as large as the samples
        normal = np.asarray(data.validation.x[indices[start : start + EVALUATION_BATCH]])
        scores.append(
            anomaly.anomaly_scores(_outputs(convert, variant, normal, spec), prepared_inputs(normal, spec.preprocess))
        )
    return float(np.quantile(np.concatenate(scores), 1 - config.false_alarms))


def _monitor_reference(
    convert: Artifact, variant: Variant, data: Data, spec: store.ModelSpec, manifest: Manifest
) -> bytes:
    """Return the encoded reference of the monitor: statistics of validation samples and of the answers to them."""
    count = len(data.validation.y)
    positions = (
        np.arange(count)
        if count <= MAX_REFERENCE_SAMPLES
        else np.unique(np.linspace(0, count - 1, MAX_REFERENCE_SAMPLES).astype(np.int64))
    )
    raw = np.asarray(data.validation.x[positions])
    return reference.encode(
        reference.build_reference(manifest, raw, _outputs(convert, variant, raw, spec), data.members)
    )


def _evaluate_stream(
    convert: Artifact, variant: Variant, data: Data, config: BundleConfig, spec: store.ModelSpec, manifest: Manifest
) -> StreamResult | None:
    """Evaluate the answers to the validation windows in the order of time. Returns None if that order is unknown."""
    sequence = streams.window_sequence(data, config)
    if sequence is None:
        return None
    raw = np.asarray(data.validation.x)[sequence.indices]
    outputs = _outputs(convert, variant, raw, spec)
    samples = prepared_inputs(raw, spec.preprocess) if spec.task == "anomaly" else None
    return streams.evaluate_smoothing(sequence, outputs, samples, manifest, config)


def _declared_smoothing(stream: StreamResult | None, config: BundleConfig) -> dict[str, Any] | None:
    """Return the `smoothing` of the manifest."""
    if stream is not None:
        return next(row["smoothing"] for row in stream["candidates"] if row["kept"])
    return config.smoothing.candidates(config.task)[0] if config.smoothing else None


def _box_options(convert: Artifact, variant: Variant, data: Data, spec: store.ModelSpec) -> dict[str, Any]:
    """Return the options that decide which boxes are answers: the probability limit that is best on validation."""
    outputs = _outputs(convert, variant, np.asarray(data.validation.x), spec)
    best = tasks.load_task(spec.task).best_probability(outputs, data.validation.y)
    options = BoxOptions(least_probability=best)
    gives_one_box = variant.model == "baseline" and spec.source is not None and spec.source.suppressed
    return (options._replace(overlap=1.0) if gives_one_box else options)._asdict()


def _readme_facts(row: dict[str, Any], metric: str) -> list[str]:
    """Return the lines about a variant in the README, from its row of the benchmark."""
    second = row.get("second_accuracy")
    return [
        f"Size: {row['bytes']:,} bytes",
        f"{metric[0].upper()}{metric[1:]}: {row['accuracy_validation']:.2%} on validation, "
        f"{row['accuracy_test']:.2%} on test",
        *(
            [f"{second['metric']}: {second['validation']:.2%} on validation, {second['test']:.2%} on test"]
            if second
            else []
        ),
        f"Drop against the baseline: {row['drop_pp']:.2f} percentage points on {row['samples']} validation samples, "
        f"at most {row['bound_pp']:.2f} at {100 * row['confidence']:g} % confidence",
    ]
