"""The jobs of a search, which the worker pool calls with JSON arguments.

If a trial fails, for example because its network cannot be built, the result is {"failed": message}. A full disk or a
changed artifact is not the fault of a trial, so such an error is raised and ends the search.
"""

from __future__ import annotations

import copy
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np

from edgekit.core import tasks
from edgekit.core.artifacts import Artifact
from edgekit.core.config import StageConfig
from edgekit.core.errors import ConfigError, ConversionError, EdgekitError, ResourceError, TrustError
from edgekit.core.tasks.accuracy_interval import accuracy_interval
from edgekit.data import Data
from edgekit.data import load as load_data
from edgekit.measure import lane, references
from edgekit.measure.latency import ConvertedModel, convert_models
from edgekit.models import store
from edgekit.models.cost import cost
from edgekit.models.from_artifact import open_model, spec_for
from edgekit.models.reparameterize import merge_and_compare
from edgekit.runner.errors import RunnerError
from edgekit.search import model_files
from edgekit.search.baseline_files import relative_limits
from edgekit.search.fidelities import NetworkSize
from edgekit.stages.prune import structured
from edgekit.targets import evaluate
from edgekit.training import resume
from edgekit.training.predict import sample_scores
from edgekit.workbook import state
from edgekit.workbook.config_file import join_settings
from edgekit.workbook.plan import Plan, load_plan, make_importable
from edgekit.workbook.shared_cache import SharedCache, open_cache
from edgekit.workbook.stage import OpenStage, open_stage

CALIBRATION_SAMPLES = 32
UNTRAINED_PRECISIONS = ("fp32", "int8")
ANCHOR_PRECISION = "fp32"
BASELINE_TEACHER = ('distill.teachers=[{"baseline": true}]', "distill.losses=[]", "distill.patience_epochs=0")
"""Settings of the third fidelity, which trains the student in the cheapest possible way."""


def prepare_baseline(
    config: str, settings: list[str], folder: str, targets: list[str], caches: list[str]
) -> dict[str, Any]:
    """Profile the baseline, make its float file for each target, and save the sample that is timed.

    `settings` are those that all trials share. Returns {"anchors": the baseline's files by target, "accuracy": on
    validation, "input": path of the sample, "took_s": …}. If limits refer to reference models, "beside" describes these
    models.
    """
    stage, profile, took_s = run_stages(config, settings, Path(folder), "profile", caches)
    spec = store.read_spec(profile.path / "model")
    sample = Path(folder) / "input.npy"
    np.save(sample, evaluate.network_inputs(stage.data.validation.x[:1], spec.preprocess), allow_pickle=False)
    with lane.computing():
        accuracy = model_files.baseline_accuracy(profile, stage.data)
        files_by_model = _convert_and_copy({"baseline": profile.path / "model"}, stage.data, spec.preprocess, targets,
                                           (ANCHOR_PRECISION,),
                        stage.plan, Path(folder) / "anchors")  # fmt: skip
    missing = [
        target for target in targets if not any(content.target == target for content in files_by_model["baseline"])
    ]
    if missing:
        raise ConversionError(
            f"the baseline cannot be converted to {', '.join(missing)}, but every latency is measured relative to it; "
            "take the target out of the objectives"
        )
    baselines = {content.target: content.to_json() for content in files_by_model["baseline"]}
    reference_inputs = _reference_inputs(stage.plan, stage.data, targets, Path(folder))
    return {"anchors": baselines, "accuracy": accuracy, "input": str(sample), "took_s": took_s, **reference_inputs}


def _reference_inputs(plan: Plan, data: Data, targets: list[str], folder: Path) -> dict[str, Any]:
    digests = {limit.of: sha256 for sha256, limit in relative_limits(plan, targets).items()}
    if not digests:
        return {}
    raw = folder / "raw.npy"
    np.save(raw, np.asarray(data.validation.x[:1]), allow_pickle=False)
    files = references.open_reference_files(plan.run.budget, targets, data)
    return {"beside": {"raw": str(raw), "files": {digests[name]: asdict(file) for name, file in files.items()}}}


def measure_shapes(config: str, trials: dict[str, list[str]]) -> dict[str, Any]:
    """Build the network of each trial and measure its size.

    Returns {"size": …, "precisions": […], "epochs": …} by the number of the trial, or {"failed": reason} for a network
    that cannot be built.
    """
    loaded: dict[str, Data] = {}
    with lane.computing():
        return {
            number: _trial_result(partial(_measure_shape, config, settings, loaded))
            for number, settings in trials.items()
        }


def convert_untrained(config: str, trials: dict[str, list[str]], folder: str, targets: list[str]) -> dict[str, Any]:
    """Convert the untrained network of each trial to `targets`; returns {"files": […]} by number of the trial."""
    return {
        number: _trial_result(partial(_convert_untrained, config, settings, Path(folder) / number, targets))
        for number, settings in trials.items()
    }


def train_briefly(
    config: str, settings: list[str], out: str, epochs: int, caches: list[str], teachers: str
) -> dict[str, Any]:
    """Train the student for only `epochs`, and return {"accuracy": on validation, "interval": its bounds}."""

    def train() -> dict[str, Any]:
        short_settings = [*settings, *BASELINE_TEACHER, f"distill.epochs={epochs}"]
        with resume.share_teachers(Path(teachers)):
            stage, distill, took_s = run_stages(config, short_settings, Path(out), "distill", caches)
        student, spec = open_model(distill)
        with lane.computing():
            scores = sample_scores(student, stage.data.validation, spec.preprocess, stage.data.task)
        interval = accuracy_interval(scores, stage.plan.run.budget.accuracy_confidence)
        return {"accuracy": round(tasks.accuracy(scores), 6), "interval": interval, "took_s": took_s}

    return _trial_result(train)


def train_fully(
    config: str, settings: list[str], out: str, targets: list[str], caches: list[str], teachers: str
) -> dict[str, Any]:
    """Run every stage up to `convert`, and return {"rows": from `evaluate_variants`, "took_s": …}."""

    def convert_trial() -> dict[str, Any]:
        with resume.share_teachers(Path(teachers)):
            stage, convert, took_s = run_stages(config, settings, Path(out), "convert", caches)
        with lane.computing():
            confidence = stage.plan.run.budget.accuracy_confidence
            rows = model_files.evaluate_variants(convert, stage.data, targets, confidence)
        if missing := [target for target in targets if not any(row["target"] == target for row in rows)]:
            raise ConversionError(f"the student has no file for {', '.join(missing)}")
        return {"rows": rows, "took_s": took_s}

    return _trial_result(convert_trial)


def _trial_result(job: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return job()
    except (ResourceError, TrustError):
        raise
    except (EdgekitError, RunnerError) as error:
        return {"failed": " ".join(str(error).split())}


def _load_trial_plan(config: str, settings: Sequence[str]) -> Plan:
    plan = load_plan(Path(config), settings)
    make_importable(plan)
    return plan


def _build_networks(plan: Plan, data: Data) -> tuple[dict[str, Any], store.ModelSpec]:
    """The untrained student and its pruned form, by name."""
    options: Any = plan.stages["distill"]
    if options.student is None:
        raise ConfigError("distill.candidates: a trial trains one student; name distill.student.builder in the space")
    spec = spec_for(
        data,
        options.student.builder,
        options.student.kwargs,
        plan.run.preprocess,
        pretrained=options.student.pretrained,
    )
    student, spec, _ = merge_and_compare(store.build(spec, seed=plan.run.seed), spec, store.zero_sample(spec))
    return {"student": student, "pruned": _prune_untrained(student, spec, plan.stages["prune"], data)}, spec


def _prune_untrained(student: Any, spec: store.ModelSpec, options: StageConfig, data: Data) -> Any:
    """Prune the untrained student, because the number of channels that remain in each layer is known before training.

    With `scope: global` that number depends on the trained weights, so the result is only an example of the pruned
    network. If latency decides what is pruned, the result is the smallest network that pruning can produce.
    """
    module, prune = copy.deepcopy(student), cast("Any", options)
    ratio = {"ratio": prune.max_layer_ratio} if prune.structured == "latency" else {}
    settings: Any = options.model_copy(update={"importance": "l2", "steps": 1, **ratio})
    for _ in structured.steps(module, spec, settings, data.train):
        pass
    return module.eval()


def _measure_shape(config: str, settings: Sequence[str], loaded: dict[str, Data]) -> dict[str, Any]:
    plan = _load_trial_plan(config, settings)
    data_key = plan.data.model_dump_json()
    if data_key not in loaded:
        loaded[data_key] = load_data(plan.data).withhold_test()
    networks, spec = _build_networks(plan, loaded[data_key])
    costs = {name: cost(module, spec.input_shape, spec.takes_ids) for name, module in networks.items()}
    student, pruned = costs["student"], costs["pruned"]
    options: Any = plan.stages
    return {
        "size": asdict(NetworkSize(student.parameters, student.macs, pruned.parameters, pruned.macs)),
        "precisions": list(options["convert"].precisions),
        "epochs": options["distill"].epochs,
    }


def _convert_untrained(config: str, settings: Sequence[str], folder: Path, targets: Sequence[str]) -> dict[str, Any]:
    plan = _load_trial_plan(config, settings)
    data = load_data(plan.data).withhold_test()
    networks, spec = _build_networks(plan, data)
    with tempfile.TemporaryDirectory(prefix="edgekit-untrained-") as scratch, lane.computing():
        saved = {name: Path(scratch) / name for name in networks}
        for name, module in networks.items():
            store.save(saved[name], module, spec)
        files_by_model = _convert_and_copy(saved, data, spec.preprocess, targets, UNTRAINED_PRECISIONS, plan, folder)
    return {"files": [content.to_json() for contents in files_by_model.values() for content in contents]}


def _convert_and_copy(
    models: Mapping[str, Path],
    data: Data,
    steps: list[dict[str, Any]],
    targets: Sequence[str],
    precisions: Sequence[str],
    plan: Plan,
    folder: Path,
) -> dict[str, list[model_files.ModelFiles]]:
    """Convert saved networks and keep their files in `folder`."""
    options: Any = plan.stages["convert"]
    raw = evaluate.spread_samples(data.calibration, CALIBRATION_SAMPLES)
    with tempfile.TemporaryDirectory(prefix="edgekit-search-") as scratch:
        converted, _ = convert_models(
            models, evaluate.network_inputs(raw, steps), targets, precisions, Path(scratch), options.timeout_s
        )
        files_by_model: dict[str, list[model_files.ModelFiles]] = {name: [] for name in models}
        for key, model in converted.items():
            model_folder = folder / key
            shutil.rmtree(model_folder, ignore_errors=True)
            model_folder.mkdir(parents=True)
            files_by_model[model.job.model].append(_copy_files(model, model_folder))
    return files_by_model


def _copy_files(model: ConvertedModel, folder: Path) -> model_files.ModelFiles:
    paths = [Path(shutil.copy(path, folder / path.name)) for path in model.paths]
    return model_files.ModelFiles.from_paths(model.job.target, paths, model.files.inputs, model.files.outputs)


def run_stages(
    config: str, settings: Sequence[str], out: Path, until: str, caches: Sequence[str] = ()
) -> tuple[OpenStage, Artifact, dict[str, float]]:
    """Run every stage up to `until`, as its notebook would.

    A stage whose result is in one of the `caches` is copied from the first cache that has it, instead of being run.
    Every result is then added to the caches that lack it.

    Parameters
    ----------
    config
        Path of the config.
    settings
        Overrides, each `key.key=value`.
    out
        Folder of the run.
    until
        The last stage.
    caches
        Folders or URLs of shared caches, asked in this order.

    Returns
    -------
    OpenStage, Artifact, dict
        The last stage, its artifact, and the seconds that each stage took.

    Raises
    ------
    EdgekitError
        The error of a stage.
    """
    opened_caches = [open_cache(url) for url in caches]
    took_s: dict[str, float] = {}
    stage: str | None = "profile"
    while stage is not None:
        started = time.monotonic()
        parameters = {"config": config, "out": str(out.absolute()), "settings": join_settings(list(settings))}
        current = open_stage(stage, parameters)
        _pull_from_cache(current, opened_caches)
        artifact = current.run()
        for cache in opened_caches:
            cache.push(artifact, current.folder)
        took_s[stage] = round(time.monotonic() - started, 3)
        stage = _next_stage(current.plan, stage, until)
    return current, artifact, took_s


def _next_stage(plan: Plan, stage: str, until: str) -> str | None:
    if until not in plan.pipeline:
        raise ConfigError(f"{plan.path.name}: has no stage {until}; its stages are {', '.join(plan.pipeline)}")
    position = plan.pipeline.index(stage)
    return None if stage == until else plan.pipeline[position + 1]


def _pull_from_cache(stage: OpenStage, caches: Sequence[SharedCache]) -> None:
    """Copy the stage's artifact from a cache if it does not exist yet."""
    inputs = state.cache_inputs(stage.plan, stage.folder, stage.name, stage.source, stage.data.digest)
    if state.check_artifact(stage.out, inputs)[0] != "unchecked":
        any(cache.pull(inputs.key, stage.folder, stage.name) for cache in caches)
