"""A config file becomes a plan: what runs, with which options, checked before anything starts."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from edgekit.core import yaml_file
from edgekit.core.config import (
    StageConfig,
    refuse_secrets,
    stages_to_run,
    validate,
)
from edgekit.core.errors import MAX_FAULT_LINES, ConfigError, FaultCollector
from edgekit.data import SourceConfig
from edgekit.data import parse as parse_data
from edgekit.data.paths import expand_path
from edgekit.models.files import compatibility, detect
from edgekit.runner.errors import RunnerError
from edgekit.training.teachers.model_file import check_task
from edgekit.workbook import config_file
from edgekit.workbook.config_file import (
    RunConfig,
    beside,
    for_stage,
    is_scalar,
    join_settings,
    own_fields,
    parse_stage,
    section_of,
    shared_options,
    split_settings,
)


def workbook_folder(name: str) -> Path:
    """`notebooks` or `configs`: inside the package in an installed wheel, beside it in a clone."""
    package = Path(__file__).resolve().parent.parent
    inside = package / "_workbook" / name
    return inside if inside.is_dir() else package.parent / name


DEFAULT_CONFIG = workbook_folder("configs") / "digits.yaml"


@dataclass(frozen=True)
class Plan:
    """A checked config. `values` is what the user wrote, overrides applied, for the record."""

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
        """The user's weights, relative paths taken from the config's folder."""
        weights = self.run.model.weights
        return self.path.parent / Path(weights).expanduser() if weights else None

    @property
    def source(self) -> Path | None:
        """The user's model file, relative paths taken from the config's folder."""
        source = self.run.model.source
        return self.path.parent / expand_path(source, "model.source") if source else None

    def section(self, stage: str) -> dict[str, Any]:
        """What the user wrote for a stage, relative paths taken from the config's folder."""
        return section_of(self.path, self.run, stage)

    def scalars(self, stage: str) -> dict[str, bool | int | float | str]:
        """The stage's own scalar options: the parameters of its notebook."""
        config = self.stages[stage]  # not its dump, which leaves out what has no influence
        values = {name: getattr(config, name) for name in own_fields(type(config))}
        return {name: value for name, value in values.items() if is_scalar(value)}


def make_importable(plan: Plan) -> None:
    """A user's `package.module:function` is found in the folder the command was started in, then beside the config."""
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))  # as a kernel has it: both must find the same file
    if str(plan.path.parent) not in sys.path:
        sys.path.append(str(plan.path.parent))


def load_plan(path: Path, settings: str | Iterable[str] = (), *, known: bool = False) -> Plan:
    """Read and check a config.

    Parameters
    ----------
    path
        The YAML file.
    settings
        Overrides, each `key.key=value` as after `--set`; a text holds several, with spaces between.
    known
        True leaves out the checks that need numpy, for a config whose keys have been sealed before.

    Raises
    ------
    ConfigError
        With one line for each fault.
    ModelError
        The model's weights cannot be used.
    """
    overrides = split_settings(settings) if isinstance(settings, str) else list(settings)
    given = yaml_file.read(path)
    for override in overrides:
        config_file.override(given, override)
    refuse_secrets(given)
    run, stages, data = _sections(path, given)
    plan = Plan(path.resolve(), given, run, data, stages, join_settings(overrides))
    faults = FaultCollector()
    if plan.weights and not plan.weights.is_file():
        faults.add(f"model.weights: no file {os.fspath(run.model.weights or '')!r} beside {path.name}")
    if plan.source:
        faults.collect(lambda: check_task("model.source", run.task))
        faults.collect(partial(detect.check_source, plan.source, run.model.sha256, "model.source"))
    if not known and not (plan.source and faults.messages):  # what a missing file can become, nobody knows
        faults.collect(lambda: agree(plan))
    faults.raise_all(MAX_FAULT_LINES)
    if plan.weights:
        detect.check_weights(plan.weights)  # a ModelError, which must not hide what is wrong with the config
    return plan


def _sections(path: Path, given: dict[str, Any]) -> tuple[RunConfig, dict[str, StageConfig], SourceConfig]:
    """Every section of a config, checked; ConfigError lists the faults of all of them."""
    faults = FaultCollector()
    run: RunConfig = faults.collect(lambda: validate(RunConfig, given, "")) or _rest(given)
    run = faults.collect(lambda: config_file.referenced(path, run)) or run
    shared = shared_options(run)
    stages: dict[str, Any] = {}
    for stage in faults.collect(lambda: stages_to_run(run)) or ():
        section = section_of(path, run, stage)
        stages[stage] = faults.collect(partial(parse_stage, stage, section, for_stage(stage, run, shared)))
    data = faults.collect(lambda: parse_data(beside(path, run.data), run.task)) if "data" in given else None
    faults.raise_all(MAX_FAULT_LINES)
    assert data is not None  # or its fault would have been raised
    return run, stages, data


def _rest(given: dict[str, Any]) -> RunConfig:
    """What is right of a faulty config's top level, so that its sections can be checked too."""
    needed = {"name": "run", "data": {"source": "digits"}, "model": {"builder": "any:any"}}
    try:
        RunConfig.model_validate(given)
        wrong = set[Any]()
    except ValidationError as error:
        wrong = {fault["loc"][0] for fault in error.errors()}
    right: RunConfig = validate(RunConfig, needed | {key: given[key] for key in given if key not in wrong}, "")
    return right


def agree(plan: Plan) -> None:
    """Impossible combinations: each message names the two fields that disagree."""
    from edgekit.runner.preprocess.steps import check as check_steps
    from edgekit.runner.preprocess.steps import check_keys

    faults = FaultCollector()
    available = plan.data.calibration_samples
    for stage in ("quantize", "convert"):
        wanted = getattr(plan.run, stage).get("calibration_samples") if stage in plan.stages else None
        if wanted is not None and available is not None and wanted > available:
            faults.add(
                f"{stage}.calibration_samples ({wanted}) and data.calibration_samples ({available}) disagree: "
                f"the calibration split has fewer samples than {stage} asks for; raise the one or lower the other"
            )
    try:
        check_keys(plan.run.preprocess)
        if shape := plan.data.raw_shape:
            check_steps(plan.run.preprocess, shape, "uint8" if len(shape) == 3 else "float32")
    except RunnerError as error:
        faults.add(f"preprocess: {error}")
    faults.collect(lambda: _reached(plan))
    faults.collect(lambda: _teach_together(plan))
    faults.collect(lambda: config_file.agree_with_references(plan.run.budget, plan.stages))
    for config in plan.stages.values():
        faults.collect(config.check_consistency)
    faults.raise_all()


def _reached(plan: Plan) -> None:
    """Something that the run has is converted to something that it can become."""
    converted: Any = plan.stages["convert"]
    models, trains = set(converted.models), "distill" in plan.pipeline
    if not trains and "baseline" not in models:
        raise ConfigError(
            f"convert.models and distill disagree: got {list(converted.models)}, and a run without distill has only "
            "the baseline; name it, or give distill a student"
        )
    if plan.source and "baseline" in models:
        alone = not trains or models == {"baseline"}
        compatibility.check_targets(
            plan.source, converted.targets, is_only_model=alone, targets_are_named=converted.targets_named
        )


def _teach_together(plan: Plan) -> None:
    """Only networks do; a baseline that came as a file is found to be none when the others have been trained."""
    distill: Any = plan.stages.get("distill")
    if plan.source and distill and distill.ensemble != "none" and any(each.baseline for each in distill.teachers):
        raise ConfigError(
            f"distill.ensemble and model.source disagree: got {distill.ensemble}, and the baseline is a file; only "
            "PyTorch networks teach together: leave baseline: true out of distill.teachers, or write ensemble: none"
        )
