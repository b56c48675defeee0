"""Turn a config file into a plan: the stages to run and their options, all of which are checked before the start."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from edgekit.core import detector_names, yaml_file
from edgekit.core.config import (
    StageConfig,
    refuse_secrets,
    stages_to_run,
    validate,
)
from edgekit.core.errors import MAX_FAULT_LINES, ConfigError, FaultCollector
from edgekit.core.paths import expand_path
from edgekit.core.tasks import BOX_TASKS, FILE_TASKS, Task
from edgekit.data import SourceConfig
from edgekit.data import parse as parse_data
from edgekit.models.files import compatibility, detect
from edgekit.runner.errors import RunnerError
from edgekit.training.teachers.model_file import check_task
from edgekit.workbook import config_file
from edgekit.workbook.config_file import (
    RunConfig,
    is_scalar,
    join_settings,
    own_fields,
    parse_stage,
    resolve_paths,
    shared_options,
    split_settings,
    stage_section,
    stage_shared_options,
)


def workbook_folder(name: str) -> Path:
    """Return the folder `notebooks` or `configs`, which lies inside the package in a wheel and beside it in a clone."""
    package = Path(__file__).resolve().parent.parent
    packaged = package / "_workbook" / name
    return packaged if packaged.is_dir() else package.parent / name


DEFAULT_CONFIG = workbook_folder("configs") / "digits.yaml"


@dataclass(frozen=True)
class Plan:
    """A checked config.

    `values` is the config as the user wrote it, with overrides applied. `stages` has the options of each stage, in the
    order of the pipeline, with all defaults filled in.
    """

    path: Path
    values: dict[str, Any]
    run: RunConfig
    data: SourceConfig
    stages: dict[str, StageConfig]
    settings: str = ""

    @property
    def pipeline(self) -> tuple[str, ...]:
        """The stages of this run, in order."""
        return tuple(self.stages)

    @property
    def weights(self) -> Path | None:
        """Path of the user's weights. A relative path starts at the folder of the config."""
        weights = self.run.model.weights
        return self.path.parent / Path(weights).expanduser() if weights else None

    @property
    def source(self) -> Path | None:
        """Path of the user's model file. A relative path starts at the folder of the config."""
        source = self.run.model.source
        return self.path.parent / expand_path(source, "model.source") if source else None

    def section(self, stage: str) -> dict[str, Any]:
        """Return the options that the user set for a stage. Relative paths start at the folder of the config."""
        return stage_section(self.path, self.run, stage)

    def scalars(self, stage: str) -> dict[str, bool | int | float | str]:
        """Return the scalar options of a stage, which are the parameters of its notebook."""
        config = self.stages[stage]  # a dump would leave out options that do not influence the result
        values = {name: getattr(config, name) for name in own_fields(type(config))}
        return {name: value for name, value in values.items() if is_scalar(value)}


def make_importable(plan: Plan) -> None:
    """Make the user's modules importable, first from the current folder and then from the folder of the config."""
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))  # as in a kernel, so that both import the same file
    if str(plan.path.parent) not in sys.path:
        sys.path.append(str(plan.path.parent))


def load_plan(path: Path, settings: str | Iterable[str] = (), *, checked_before: bool = False) -> Plan:
    """Read and check a config.

    Parameters
    ----------
    path
        The YAML file.
    settings
        Overrides in the form `key.key=value`, as after `--set`; a string may hold several, separated by spaces.
    checked_before
        True skips the checks that need NumPy, for a config that has passed them before or that `run` will check.

    Raises
    ------
    ConfigError
        The config has faults. The message has one line for each of them.
    ModelError
        The weights of the model cannot be used.

    Examples
    --------
    >>> from pathlib import Path
    >>> from edgekit.workbook.plan import load_plan
    >>> plan = load_plan(Path("configs/digits.yaml"), ["prune.ratio=0.4"])
    >>> plan.pipeline
    ('profile', 'distill', 'prune', 'quantize', 'convert', 'benchmark', 'bundle')
    >>> plan.stages["prune"].ratio
    0.4
    """
    overrides = split_settings(settings) if isinstance(settings, str) else list(settings)
    values = yaml_file.read(path)
    for override in overrides:
        config_file.apply_setting(values, override)
    refuse_secrets(values)
    run, stages, data = _parse_sections(path, values)
    plan = Plan(path.resolve(), values, run, data, stages, join_settings(overrides))
    faults = FaultCollector()
    if plan.weights and not plan.weights.is_file():
        faults.add(f"model.weights: no file {os.fspath(run.model.weights or '')!r} beside {path.name}")
    if plan.source:
        faults.collect(lambda: check_task("model.source", run.task))
        faults.collect(partial(detect.check_source, plan.source, run.model.sha256, "model.source"))
    if run.model.head is not None:
        faults.collect(partial(_check_head, run.model.head, run.task))
    if not checked_before and not (plan.source and faults.messages):  # a missing file cannot be checked for conversion
        faults.collect(lambda: check_consistency(plan))
    faults.raise_all(MAX_FAULT_LINES)
    if plan.weights:
        detect.check_weights(plan.weights)  # a ModelError must not hide faults of the config
    return plan


def _check_head(head: str, task: Task) -> None:
    """Raise ConfigError if `model.head` is no known name, or the task has no heads."""
    try:
        detector_names.parse(head)
    except ConfigError as error:
        raise ConfigError(f"model.head: {error}") from None
    if task not in BOX_TASKS:
        raise ConfigError(f"task and model.head disagree: a head belongs to a detection, but task is {task}")


def _parse_sections(path: Path, values: dict[str, Any]) -> tuple[RunConfig, dict[str, StageConfig], SourceConfig]:
    """Check every section of a config, and raise one ConfigError with the faults of all sections."""
    faults = FaultCollector()
    if isinstance(values.get("model"), dict):
        values = {**values, "model": resolve_paths(path, values["model"])}
    run: RunConfig = faults.collect(lambda: validate(RunConfig, values, "")) or _valid_part(values)
    run = faults.collect(lambda: config_file.with_reference_models(path, run)) or run
    shared = shared_options(run)
    stages: dict[str, Any] = {}
    for stage in faults.collect(lambda: stages_to_run(run)) or ():
        section = stage_section(path, run, stage)
        stages[stage] = faults.collect(partial(parse_stage, stage, section, stage_shared_options(stage, run, shared)))
    data = faults.collect(lambda: parse_data(resolve_paths(path, run.data), run.task)) if "data" in values else None
    faults.raise_all(MAX_FAULT_LINES)
    assert data is not None  # otherwise its fault has been raised
    return run, stages, data


def _valid_part(values: dict[str, Any]) -> RunConfig:
    """Return the valid part of a faulty top level, so that the sections can be checked too."""
    placeholders = {"name": "run", "data": {"source": "digits"}, "model": {"builder": "any:any"}}
    try:
        RunConfig.model_validate(values)
        faulty_keys = set[Any]()
    except ValidationError as error:
        faulty_keys = {fault["loc"][0] for fault in error.errors()}
    valid: RunConfig = validate(
        RunConfig, placeholders | {key: values[key] for key in values if key not in faulty_keys}, ""
    )
    return valid


def check_consistency(plan: Plan) -> None:
    """Check options of different sections against each other.

    Raises
    ------
    ConfigError
        Some options contradict each other. The message has one line for each contradiction, which names both fields.
    """
    from edgekit.runner.preprocess.steps import check as check_steps
    from edgekit.runner.preprocess.steps import check_keys

    faults = FaultCollector()
    available = plan.data.calibration_samples
    for stage in ("quantize", "convert"):
        requested = getattr(plan.run, stage).get("calibration_samples") if stage in plan.stages else None
        if requested is not None and available is not None and requested > available:
            faults.add(
                f"{stage}.calibration_samples ({requested}) and data.calibration_samples ({available}) disagree: "
                f"the calibration split has fewer samples than {stage} asks for; raise the one or lower the other"
            )
    try:
        check_keys(plan.run.preprocess)
        if shape := plan.data.raw_shape:
            check_steps(plan.run.preprocess, shape, "uint8" if len(shape) == 3 else "float32")
    except RunnerError as error:
        faults.add(f"preprocess: {error}")
    faults.collect(lambda: _check_file_task(plan))
    faults.collect(lambda: _check_conversions(plan))
    faults.collect(lambda: _check_ensemble(plan))
    faults.collect(lambda: config_file.check_budget_references(plan.run.budget, plan.stages))
    for config in plan.stages.values():
        faults.collect(config.check_consistency)
    faults.raise_all()


def _check_file_task(plan: Plan) -> None:
    """Check that a network comes as a file, and that nothing is trained, if no loss exists for the task."""
    if plan.run.task in FILE_TASKS and (not plan.source or "distill" in plan.pipeline):
        raise ConfigError(
            f"task: {plan.run.task} supports only a model file, which is used as it is: name it under model.source, "
            "and leave the section distill out"
        )


def _check_conversions(plan: Plan) -> None:
    """Check that the run converts at least one of its models to at least one target that the model supports."""
    conversion: Any = plan.stages["convert"]
    models, has_distill = set(conversion.models), "distill" in plan.pipeline
    if not has_distill and "baseline" not in models:
        raise ConfigError(
            f"convert.models and distill disagree: got {list(conversion.models)}, but a run without distill has only "
            f"the baseline; name the baseline, or set distill.student"
        )
    if plan.source and "baseline" in models:
        is_only_model = not has_distill or models == {"baseline"}
        compatibility.check_targets(
            plan.source, conversion.targets, is_only_model=is_only_model, targets_are_named=conversion.targets_named
        )


def _check_ensemble(plan: Plan) -> None:
    """Check that an ensemble of teachers has only PyTorch networks.

    Without this check, an ensemble with a baseline from a file would fail only after training.
    """
    distill: Any = plan.stages.get("distill")
    if plan.source and distill and distill.ensemble != "none" and any(each.baseline for each in distill.teachers):
        raise ConfigError(
            f"distill.ensemble and model.source disagree: got {distill.ensemble}, and the baseline is a file; only "
            "PyTorch networks can form an ensemble: leave baseline: true out of distill.teachers, or write ensemble: "
            "none"
        )
