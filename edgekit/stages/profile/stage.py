"""Run the profile stage: train or load the float model that the user starts from, and measure it."""

from __future__ import annotations

import dataclasses
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from edgekit.core import artifacts, progress, tasks
from edgekit.core.artifacts import Artifact
from edgekit.core.config import Pretrained, validate
from edgekit.core.errors import ConfigError
from edgekit.core.schema.training import CrossValidation
from edgekit.data import Data
from edgekit.models import dry_run, reparameterize, store
from edgekit.models.cost import cost
from edgekit.models.eager import eager_input, single_thread
from edgekit.models.files import TITLES, import_in_background, task_outputs
from edgekit.models.files.detector_readings import MAX_SAMPLES
from edgekit.models.from_artifact import spec_for
from edgekit.models.patch_features import FIT_METHOD
from edgekit.models.pretrained import load_backbone
from edgekit.models.user_errors import reporting_failures
from edgekit.stages.profile.config import LIBRARIES, ProfileConfig
from edgekit.stages.profile.cross_validation import cross_validate
from edgekit.stages.profile.measure import measure
from edgekit.targets.evaluate import labelled_train_samples
from edgekit.training import resume
from edgekit.training.fit import fit
from edgekit.training.predict import evaluate, score_samples
from edgekit.training.resume import ResumeFolder
from edgekit.training.teachers import model_file

FITTED_SAMPLES = 16
"""The number of samples whose features are computed at a time."""


def load_model_file(
    source: Artifact, origin: dict[str, Any], data: Data, config: ProfileConfig, out: Path
) -> tuple[nn.Module, store.ModelSpec, float]:
    """Load the user's model file, save it in `out`, print what it is, and return its accuracy on the validation split.

    Raises ModelError if the file cannot be run, or if it is not better than always giving the same answer.
    """
    path = source.file(origin["model"]["source"])
    for name in source.files:
        source.file(name)
    model = model_file.open_file(path, origin["preprocess"])
    import_in_background(model.kind)  # while another process runs the file
    split = data.validation
    with tempfile.TemporaryDirectory() as home:
        cut_file = Path(home) / path.name
        outputs, facts = model_file.logits_and_facts(
            model,
            split.x,
            classes=len(data.classes),
            timeout_s=config.timeout_s,
            threads=config.threads,
            task=data.task,
            tensors=data.tensors or (),
            keypoints=data.keypoint_count,
            cut_file=cut_file,
            head=origin["model"].get("head"),
            labelled=labelled_train_samples(data, MAX_SAMPLES) if data.task in tasks.BOX_TASKS else None,
        )
        task_outputs.check_answers(path.name, outputs, split.y, data.classes, origin["preprocess"], data.task)
        spec = spec_for(data, None, {}, origin["preprocess"], store.Source(**facts))
        store.save_source(out, cut_file if cut_file.exists() else path, spec)
    print(f"{path.name} is {describe(spec)}")
    return store.load(out)[0], spec, tasks.accuracy(score_samples(outputs, split, spec.preprocess, data.task))


def describe(spec: store.ModelSpec) -> str:
    """Describe a model file in one line: format, outputs and cost."""
    source = spec.source
    assert source is not None
    output_kinds = {"probabilities": source.probabilities, "sigmoids": source.sigmoids}
    kind = (
        "values"
        if spec.task == "regression"
        else next((name for name, applies in output_kinds.items() if applies), "logits")
    )
    cost = f", {source.parameters:,} parameters, {source.macs / 1e6:.1f} M multiply-adds" if source.parameters else ""
    prefixes = {
        "detection": "boxes and ", "keypoints": "boxes, keypoints and ", "instance_masks": "boxes, masks and ",
        "segmentation": "a grid of ",
    }  # fmt: skip
    prefix = prefixes.get(spec.task, "")
    outputs = (
        f"{spec.num_classes} {kind}" if spec.task == "regression" else f"{prefix}{kind} of {spec.num_classes} classes"
    )
    decoding = f"; its own outputs are {source.decoding}" if source.decoding else ""
    return f"{TITLES[source.kind]}: gives {outputs}{cost}{decoding}"


def profile(source: Artifact, data: Data, config: ProfileConfig, out: Path) -> Artifact:
    """Run the profile stage; see `edgekit.stages.profile`."""
    artifacts.begin(out)
    origin = json.loads(source.file("origin.json").read_text(encoding="utf-8"))
    history, reparameterized, weights_report, validated = None, None, None, None
    if "source" in origin["model"]:
        module, spec, accuracy = load_model_file(source, origin, data, config, out / "model")
    else:
        model = origin["model"]
        pretrained = _pretrained(source, model["pretrained"]) if "pretrained" in model else None
        spec = spec_for(data, model["builder"], model["kwargs"], origin["preprocess"], pretrained=pretrained)
        resume_folder = resume.folder_for(out, "profile", source, data.digest, config.model_dump(), LIBRARIES)
        if pretrained:
            weights_report = load_backbone(store.build(spec), pretrained)
            print(f"Starts from {weights_report}")
        module, history = _train_or_load(source, data, config, spec, resume_folder, origin["weights"] is not None)
        validated = _cross_validate(data, config, spec, resume_folder, trains=history is not None)
        compared_inputs = eager_input(data.validation.x[: reparameterize.COMPARED_SAMPLES], spec.preprocess)
        module, spec, reparameterized = reparameterize.merge_and_compare(module.cpu(), spec, compared_inputs)
        store.save(out / "model", module, spec)
    module = module.cpu().eval()

    with reporting_failures(spec.called, "on the validation split", module):
        network_cost = cost(module, spec.input_shape, spec.takes_ids)
        if spec.is_torch:
            accuracy = evaluate(module, data.validation, spec.preprocess, data.task)
    quality = {
        "validation_accuracy": accuracy,
        **dataclasses.asdict(network_cost),
        "file_bytes": store.weight_bytes(out / "model"),
        "trained_here": history is not None,
    }
    with reporting_failures(spec.called, "while it is measured", module):
        evidence = {**measure(module, out / "model", spec, network_cost, data, config), "history": history or []}

    artifacts.write_json(out / "profile.json", quality)
    artifacts.write_json(out / artifacts.EVIDENCE / "latency.json", evidence)
    return artifacts.seal(
        out,
        stage="profile",
        source=source,
        data_digest=data.digest,
        config=config.model_dump(),
        metrics={
            **quality,
            **evidence,
            **({"reparameterized": reparameterized.row()} if reparameterized else {}),
            **({"data_notes": list(data.notes)} if data.notes else {}),
            **({"pretrained": weights_report.row()} if weights_report else {}),
            **({"cross_validation": validated} if validated else {}),
        },
        libraries=LIBRARIES,
    )


def _pretrained(source: Artifact, section: dict[str, Any]) -> Pretrained:
    """Return the weights to start from. A file is read from the origin's copy, because only its name is recorded."""
    copied = {"file": str(source.file(section["file"]))} if "file" in section else {}
    pretrained: Pretrained = validate(Pretrained, {**section, **copied}, "model.pretrained")
    return pretrained


def _cross_validate(
    data: Data, config: ProfileConfig, spec: store.ModelSpec, resume_folder: ResumeFolder, *, trains: bool
) -> CrossValidation | None:
    """Cross-validate the baseline if the config asks for it, and print the accuracy with its interval."""
    if not config.folds:
        return None
    if not trains:
        raise ConfigError("profile.folds: the baseline is not trained here, so there is nothing to cross-validate")
    result = cross_validate(data, spec, config, resume_folder)
    metric = tasks.load_task(data.task).METRIC
    print(
        f"Cross-validation: {metric} {result['accuracy']:.2%} ({result['confidence']:.0%} interval {result['low']:.2%} "
        f"to {result['high']:.2%}) over {result['samples']} samples in {result['folds']} folds"
    )
    return result


def _train_or_load(
    source: Artifact,
    data: Data,
    config: ProfileConfig,
    spec: store.ModelSpec,
    resume_folder: ResumeFolder,
    has_weights: bool,
) -> tuple[nn.Module, list[dict[str, Any]] | None]:
    module = store.build(spec, seed=config.seed)
    is_fitted = hasattr(module, FIT_METHOD)
    if has_weights:
        store.load_weights(module, source.file("weights.safetensors"))
    dry_run.check_network(
        module,
        spec,
        eager_input(data.validation.x[: dry_run.SAMPLES], spec.preprocess),
        trains=not has_weights and not is_fitted,
    )
    if has_weights:
        return module, None
    if is_fitted:
        with progress.step("fitting the baseline"), reporting_failures(spec.called, "in fitting", module):
            _fit_features(module, data, spec)
        return module, []
    with progress.step("training the baseline"), reporting_failures(spec.called, "in training", module):
        history = fit(
            module,
            data,
            spec.preprocess,
            config,
            seed=config.seed,
            device=config.device,
            threads=config.threads,
            training=config.training,
            pretrained=spec.pretrained,
            resume=resume_folder.checkpoint("baseline"),
        )
    return module, [dataclasses.asdict(epoch) for epoch in history.epochs]


def _fit_features(module: Any, data: Data, spec: store.ModelSpec) -> None:
    """Fit a network to the normal samples of the train split, on one thread so that the weights are the same again."""
    normal = np.flatnonzero(data.train.y == 0)
    starts = range(0, len(normal), FITTED_SAMPLES)
    with single_thread():
        module.fit_features(
            eager_input(np.asarray(data.train.x[normal[start : start + FITTED_SAMPLES]]), spec.preprocess)
            for start in starts
        )
