"""What the processes of a search do: functions of JSON arguments, called by a pool.

A fault of one trial (a network that cannot be built, a file that cannot be made) is its result: {"failed": words}.
Full disks and broken seals are faults of the machine: they are raised and end the search.
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
from edgekit.data import Data
from edgekit.data import load as load_data
from edgekit.measure import lane, references
from edgekit.measure.latency import Converted, convert_plainly
from edgekit.models import store
from edgekit.models.cost import cost
from edgekit.models.from_artifact import open_model, spec_for
from edgekit.models.reparameterize import merge_and_compare
from edgekit.runner.errors import RunnerError
from edgekit.search import files
from edgekit.search.anchors import rivals
from edgekit.search.rungs import Size
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
BASELINE_TEACHES = ('distill.teachers=[{"baseline": true}]', "distill.losses=[]", "distill.patience_epochs=0")
"""How the student of the third rung is taught: the cheapest way that there is."""


def baseline(config: str, settings: list[str], folder: str, targets: list[str], caches: list[str]) -> dict[str, Any]:
    """Profile the baseline, make its float file for each target, and save the sample that is timed.

    `settings` are those of every trial. {"anchors": contents by target, "accuracy": on validation, "input": path of a
    network input, "took_s": …}; where limits are relative to rivals, "beside": as `anchors.Anchors` has them.
    """
    opened, made, took_s = make_stages(config, settings, Path(folder), "profile", caches)
    spec = store.read_spec(made.path / "model")
    sample = Path(folder) / "input.npy"
    np.save(sample, evaluate.network_inputs(opened.data.validation.x[:1], spec.preprocess), allow_pickle=False)
    with lane.computing():
        accuracy = files.baseline_accuracy(made, opened.data)
        kept = _convert({"baseline": made.path / "model"}, opened.data, spec.preprocess, targets, (ANCHOR_PRECISION,),
                        opened.plan, Path(folder) / "anchors")  # fmt: skip
    lost = [target for target in targets if not any(content.target == target for content in kept["baseline"])]
    if lost:
        raise ConversionError(
            f"the baseline cannot be converted to {', '.join(lost)}, and every latency is told beside it; "
            "take the target out of the objectives"
        )
    anchors = {content.target: content.to_json() for content in kept["baseline"]}
    beside = _rivals(opened.plan, opened.data, targets, Path(folder))
    return {"anchors": anchors, "accuracy": accuracy, "input": str(sample), "took_s": took_s, **beside}


def _rivals(plan: Plan, data: Data, targets: list[str], folder: Path) -> dict[str, Any]:
    named = {limit.of: sha256 for sha256, limit in rivals(plan, targets).items()}
    if not named:
        return {}
    raw = folder / "raw.npy"
    np.save(raw, np.asarray(data.validation.x[:1]), allow_pickle=False)
    found = references.rivals_of(plan.run.budget, targets, data)
    return {"beside": {"raw": str(raw), "files": {named[name]: asdict(one) for name, one in found.items()}}}


def shapes(config: str, trials: dict[str, list[str]]) -> dict[str, Any]:
    """Of each trial (settings by number) {"size": …, "precisions": […], "epochs": …}, or why there is no network."""
    loaded: dict[str, Data] = {}
    with lane.computing():
        return {number: _of_trial(partial(_shape, config, settings, loaded)) for number, settings in trials.items()}


def untrained(config: str, trials: dict[str, list[str]], folder: str, targets: list[str]) -> dict[str, Any]:
    """Of each trial its files, untrained, on `targets`: {"files": [content, …]}."""
    return {
        number: _of_trial(partial(_untrained, config, settings, Path(folder) / number, targets))
        for number, settings in trials.items()
    }


def few_epochs(
    config: str, settings: list[str], out: str, epochs: int, caches: list[str], teachers: str
) -> dict[str, Any]:
    """Train the student for `epochs` alone: {"accuracy": on validation, "interval": both ends}."""

    def train() -> dict[str, Any]:
        short = [*settings, *BASELINE_TEACHES, f"distill.epochs={epochs}"]
        with resume.share_teachers(Path(teachers)):
            opened, made, took_s = make_stages(config, short, Path(out), "distill", caches)
        student, spec = open_model(made)
        with lane.computing():
            found = sample_scores(student, opened.data.validation, spec.preprocess, opened.data.task)
        ends = files.interval(found, opened.plan.run.budget.accuracy_confidence)
        return {"accuracy": round(tasks.accuracy(found), 6), "interval": ends, "took_s": took_s}

    return _of_trial(train)


def everything(
    config: str, settings: list[str], out: str, targets: list[str], caches: list[str], teachers: str
) -> dict[str, Any]:
    """Every stage up to `convert`, and how accurate its files are: {"rows": as `files.evaluate`, "took_s": …}."""

    def make() -> dict[str, Any]:
        with resume.share_teachers(Path(teachers)):
            opened, made, took_s = make_stages(config, settings, Path(out), "convert", caches)
        with lane.computing():
            confidence = opened.plan.run.budget.accuracy_confidence
            rows = files.evaluate(made, opened.data, targets, confidence)
        if missing := [target for target in targets if not any(row["target"] == target for row in rows)]:
            raise ConversionError(f"no file of the student for {', '.join(missing)}")
        return {"rows": rows, "took_s": took_s}

    return _of_trial(make)


def _of_trial(do: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return do()
    except (ResourceError, TrustError):
        raise
    except (EdgekitError, RunnerError) as error:
        return {"failed": " ".join(str(error).split())}


def _plan(config: str, settings: Sequence[str]) -> Plan:
    plan = load_plan(Path(config), settings)
    make_importable(plan)
    return plan


def _built(plan: Plan, data: Data) -> tuple[dict[str, Any], store.ModelSpec]:
    """The untrained student and its pruned form, by name."""
    options: Any = plan.stages["distill"]
    if options.student is None:
        raise ConfigError("distill.candidates: a trial trains one student; name distill.student.builder in the space")
    spec = spec_for(data, options.student.builder, options.student.kwargs, plan.run.preprocess)
    student, spec, _ = merge_and_compare(store.build(spec, seed=plan.run.seed), spec, store.zero_sample(spec))
    return {"student": student, "pruned": _pruned(student, spec, plan.stages["prune"], data)}, spec


def _pruned(student: Any, spec: store.ModelSpec, options: StageConfig, data: Data) -> Any:
    """The last step's network: how many channels stay in a layer is known before any training.

    With `scope: global` it is an example of such a network, since what stays depends on the weights. Where time decides
    what is cut, it is the smallest that may come of it.
    """
    module, given = copy.deepcopy(student), cast("Any", options)
    most = {"ratio": given.max_layer_ratio} if given.structured == "latency" else {}
    by_size: Any = options.model_copy(update={"importance": "l2", "steps": 1, **most})
    for _ in structured.steps(module, spec, by_size, data.train):
        pass
    return module.eval()


def _shape(config: str, settings: Sequence[str], loaded: dict[str, Data]) -> dict[str, Any]:
    plan = _plan(config, settings)
    what = plan.data.model_dump_json()
    if what not in loaded:
        loaded[what] = load_data(plan.data).withhold_test()
    built, spec = _built(plan, loaded[what])
    costs = {name: cost(module, spec.input_shape, spec.takes_ids) for name, module in built.items()}
    student, pruned = costs["student"], costs["pruned"]
    options: Any = plan.stages
    return {
        "size": asdict(Size(student.parameters, student.macs, pruned.parameters, pruned.macs)),
        "precisions": list(options["convert"].precisions),
        "epochs": options["distill"].epochs,
    }


def _untrained(config: str, settings: Sequence[str], folder: Path, targets: Sequence[str]) -> dict[str, Any]:
    plan = _plan(config, settings)
    data = load_data(plan.data).withhold_test()
    built, spec = _built(plan, data)
    with tempfile.TemporaryDirectory(prefix="edgekit-untrained-") as scratch, lane.computing():
        saved = {name: Path(scratch) / name for name in built}
        for name, module in built.items():
            store.save(saved[name], module, spec)
        made = _convert(saved, data, spec.preprocess, targets, UNTRAINED_PRECISIONS, plan, folder)
    return {"files": [content.to_json() for contents in made.values() for content in contents]}


def _convert(
    models: Mapping[str, Path],
    data: Data,
    steps: list[dict[str, Any]],
    targets: Sequence[str],
    precisions: Sequence[str],
    plan: Plan,
    folder: Path,
) -> dict[str, list[files.Content]]:
    """The files of saved networks, kept in `folder`."""
    options: Any = plan.stages["convert"]
    raw = evaluate.spread_samples(data.calibration, CALIBRATION_SAMPLES)
    with tempfile.TemporaryDirectory(prefix="edgekit-search-") as scratch:
        made, _ = convert_plainly(
            models, evaluate.network_inputs(raw, steps), targets, precisions, Path(scratch), options.timeout_s
        )
        found: dict[str, list[files.Content]] = {name: [] for name in models}
        for key, one in made.items():
            place = folder / key
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir(parents=True)
            found[one.job.model].append(_kept(one, place))
    return found


def _kept(one: Converted, place: Path) -> files.Content:
    paths = [Path(shutil.copy(path, place / path.name)) for path in one.paths]
    return files.Content.of(one.job.target, paths, one.files.inputs, one.files.outputs)


def make_stages(
    config: str, settings: Sequence[str], out: Path, until: str, caches: Sequence[str] = ()
) -> tuple[OpenStage, Artifact, dict[str, float]]:
    """Make every stage up to `until`, as its notebook would; the last one opened, its artifact, seconds by stage.

    A stage with the same key is taken from the first of the `caches` that has it, and goes into those that lack it.

    Parameters
    ----------
    config
        Path of the config.
    settings
        Overrides, each `key.key=value`.
    out
        Folder that holds the run.
    until
        The last stage.
    caches
        Folders or URLs of shared caches, asked in this order.

    Raises
    ------
    EdgekitError
        What a stage raised.
    """
    opened_caches = [open_cache(url) for url in caches]
    took_s: dict[str, float] = {}
    stage: str | None = "profile"
    while stage is not None:
        began = time.monotonic()
        parameters = {"config": config, "out": str(out.absolute()), "settings": join_settings(list(settings))}
        opened = open_stage(stage, parameters)
        _pull(opened, opened_caches)
        made = opened.run()
        for cache in opened_caches:
            cache.push(made, opened.folder)
        took_s[stage] = round(time.monotonic() - began, 3)
        stage = _after(opened.plan, stage, until)
    return opened, made, took_s


def _after(plan: Plan, stage: str, until: str) -> str | None:
    if until not in plan.pipeline:
        raise ConfigError(f"{plan.path.name}: has no stage {until}; its stages are {', '.join(plan.pipeline)}")
    place = plan.pipeline.index(stage)
    return None if stage == until else plan.pipeline[place + 1]


def _pull(opened: OpenStage, caches: Sequence[SharedCache]) -> None:
    """Bring the stage's artifact from a cache, where it is not there yet."""
    wanted = state.cache_inputs(opened.plan, opened.folder, opened.name, opened.source, opened.data.digest)
    if state.check_artifact(opened.out, wanted)[0] != "unchecked":
        any(cache.pull(wanted.key, opened.folder, opened.name) for cache in caches)
