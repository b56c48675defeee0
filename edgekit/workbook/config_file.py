"""The config file: its top level, the sections of its stages, and the reference models that its budget names."""

from __future__ import annotations

import functools
import importlib
import json
import re
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Literal, get_args

from pydantic import Field, PrivateAttr, field_validator

from edgekit.core import precision
from edgekit.core.budget import BASELINE, ReferenceModel
from edgekit.core.config import (
    NAME_PATTERN,
    SHARED_FIELDS,
    VERSION_PATTERN,
    Budget,
    ModelConfig,
    StageConfig,
    StrictModel,
    Target,
    TrainingOptions,
    TrainingStageConfig,
    available_cores,
    shortened_repr,
    suggest,
    validate,
)
from edgekit.core.errors import ConfigError, EdgekitError, FaultCollector
from edgekit.core.paths import expand_path
from edgekit.core.preprocess_record import PreprocessRecord
from edgekit.core.tasks import Task
from edgekit.core.yaml_file import parse
from edgekit.models.files import detect
from edgekit.training import augmentations
from edgekit.training.teachers import model_file

if TYPE_CHECKING:
    from edgekit.data import Data


def split_settings(text: str) -> list[str]:
    """Split text such as `seed=1 data.limit=2000` into its settings.

    Each setting starts with `key=`, so a value may contain spaces. Text that starts with `[` is read as a JSON list.
    """
    if text.startswith("["):
        return [str(part) for part in json.loads(text)]
    return [part.strip() for part in re.split(r"\s+(?=[A-Za-z_][\w.]*=)", text.strip()) if part.strip()]


def join_settings(parts: list[str]) -> str:
    """Join settings so that `split_settings` can separate them again. JSON is used if a value requires it."""
    text = " ".join(parts)
    return text if split_settings(text) == parts else json.dumps(parts)


def apply_setting(values: dict[str, Any], setting: str) -> None:
    """Apply one `key.key=value` setting to the values of a config.

    Raises
    ------
    ConfigError
        The setting is malformed, its value is not YAML, or the key leads through something that is not a section.
    """
    key, separator, text = setting.partition("=")
    if not separator or not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", key):
        raise ConfigError(f"--set {setting!r}: write it as key=value, for example prune.ratio=0.4")
    try:
        value = parse(text)
    except ConfigError as error:
        raise ConfigError(
            f"--set {key}: {shortened_repr(text)} is not a YAML value; quote it if it is text ({error})"
        ) from None
    *parents, last = key.split(".")
    section = values
    for part in parents:
        child = section.setdefault(part, {})
        if not isinstance(child, dict):
            raise ConfigError(f"--set {key}: {part} holds {child!r}, not a section")
        section = child
    section[last] = value


Device = Literal["auto", "cpu", "cuda", "mps"]


class RunConfig(StrictModel):
    """The top level of a config file. Each stage checks its own section."""

    name: str = Field(pattern=NAME_PATTERN, description="name of the run and of its bundles")
    version: str = Field("1.0.0", pattern=VERSION_PATTERN, description="version of the bundles")
    seed: int = Field(0, ge=0, lt=2**31, description="seed of every random choice")
    device: Device = Field("auto", description="device of the training; auto takes CUDA, else MPS, else the CPU")
    threads: int = Field(0, ge=0, le=256, description="threads for training; 0: all cores")
    training: TrainingOptions = Field(
        default_factory=lambda: TrainingOptions.model_validate({}), description="how every training is carried out"
    )
    task: Task = Field("classification", description="what the network is for, and so what labels and accuracy mean")
    cell_limit_s: int = Field(43_200, ge=1, le=2_592_000, description="longest time of one notebook cell, seconds")
    data: dict[str, Any] = Field(description="where the samples come from, and the options of that source")
    model: ModelConfig = Field(description="the network to optimise")
    preprocess: list[dict[str, Any]] = Field(
        default_factory=list, description="steps from a raw sample to the network's input"
    )
    preprocess_tried: PreprocessRecord | None = Field(
        None, description="what edgekit init measured with this and other ways to prepare the input of a model file"
    )
    budget: Budget = Field(default_factory=lambda: Budget.model_validate({}), description="limits of a variant")
    targets: list[Target] = Field(
        default_factory=lambda: list(get_args(Target)),
        min_length=1,
        description="formats to convert to, each once; a named one is required, by default all possible ones are made",
    )
    profile: dict[str, Any] = Field(default_factory=dict, description="options of the stage profile")
    distill: dict[str, Any] = Field(default_factory=dict, description="options of the stage distill")
    prune: dict[str, Any] = Field(
        default_factory=dict, description="options of the stage prune; false: nothing is pruned"
    )
    quantize: dict[str, Any] = Field(default_factory=dict, description="options of the stage quantize")
    convert: dict[str, Any] = Field(default_factory=dict, description="options of the stage convert")
    benchmark: dict[str, Any] = Field(default_factory=dict, description="options of the stage benchmark")
    bundle: dict[str, Any] = Field(default_factory=dict, description="options of the stage bundle")

    _targets_named: bool = PrivateAttr(True)  # kept apart, because a copy of the model marks every field as set

    def model_post_init(self, _: Any) -> None:
        self._targets_named = "targets" in self.model_fields_set

    @property
    def targets_named(self) -> bool:
        """Whether the user wrote `targets`.

        If so, each target is required. Otherwise, targets that cannot be made are skipped.
        """
        return self._targets_named

    @field_validator("prune", mode="before")
    @classmethod
    def _off(cls, section: Any) -> Any:
        return {"enabled": False} if section is False else section

    @field_validator("targets")
    @classmethod
    def _no_target_twice(cls, targets: list[Target]) -> list[Target]:
        if len(set(targets)) != len(targets):
            raise ValueError(f"names a target twice: {targets}; name each once")
        return targets


SAMPLE_COUNT_SPLITS = {
    "calibration_samples": "calibration",
    "check_samples": "validation",
    "golden_samples": "validation",
    "sensitivity_samples": "validation",
    "taylor_samples": "train",
}
"""Options that set a number of samples, each with the split that the samples come from."""


def stage_config(stage: str) -> type[StageConfig]:
    """Return the options class of a stage, `PruneConfig` for "prune". This imports no framework."""
    module = importlib.import_module(f"edgekit.stages.{stage}")
    config: type[StageConfig] = getattr(module, f"{stage.capitalize()}Config")
    return config


def own_fields(config: type[StageConfig]) -> list[str]:
    """Return the names of the options in the stage's own section, without those shared by all stages."""
    return [name for name in config.model_fields if name not in SHARED_FIELDS]


def is_scalar(value: object) -> bool:
    """Whether a notebook's parameters cell can hold the value."""
    return isinstance(value, bool | int | float | str)


def shared_options(run: RunConfig) -> dict[str, Any]:
    """Return the options shared by all stages.

    `threads: 0` and `auto` are replaced by this machine's values, because these can change the last bits of a result.
    """
    shared, resolved_device = {name: getattr(run, name) for name in SHARED_FIELDS}, resolve_device(run.device)
    return {
        **shared,
        "threads": run.threads or available_cores(),
        "device": resolved_device,
        "training": precision.resolve_precision(run.training, resolved_device),
    }


@functools.cache
def resolve_device(name: str) -> str:
    """Return the device that `auto` selects here. Any other name is returned unchanged.

    PyTorch is not imported if it was built for the CPU only.
    """
    if name != "auto":
        return name
    if metadata.version("torch").endswith("+cpu"):
        return "cpu"
    from edgekit.training.predict import pick_device

    return pick_device(name).type


def stage_shared_options(stage: str, run: RunConfig, shared: dict[str, Any]) -> dict[str, Any]:
    """Return the shared options for one stage.

    If other devices decide on latency, `distill` receives a budget without a latency limit, because it times the
    candidates on this machine.
    """
    if stage == "distill" and run.benchmark.get("where"):
        return {**shared, "budget": run.budget.without_latency()}
    return shared


def parse_stage(stage: str, section: dict[str, Any], shared: dict[str, Any]) -> StageConfig:
    """Check the section of a stage and add the shared options that the stage uses.

    Raises
    ------
    ConfigError
        The section has faults. The message has one line for each of them.
    """
    config, faults = stage_config(stage), FaultCollector()
    for key in section:
        if key in SHARED_FIELDS:
            faults.add(
                f"{stage}.{key}: belongs at the top level of the config, because all stages share it; move it there"
            )
        elif key not in config.model_fields:
            faults.add(f"{stage}.{key}: unknown key, {suggest(str(key), own_fields(config))}")
    stage_options = {name: value for name, value in section.items() if name in own_fields(config)}
    requested = {name: value for name, value in shared.items() if name in config.model_fields}
    checked: StageConfig | None = faults.collect(lambda: validate(config, {**stage_options, **requested}, stage))
    if isinstance(checked, TrainingStageConfig):
        faults.collect(lambda: augmentations.parse_all(checked.augmentations, f"{stage}.{augmentations.FIELD}"))
    faults.raise_all()
    assert checked is not None
    return checked


def check_sample_counts(data: Data, sections: Mapping[str, Mapping[str, Any]]) -> None:
    """Check the numbers of samples that the user set for the stages.

    `sections` holds the user's options by stage. Defaults are not checked here, because they are reduced to the number
    of samples in the split.

    Raises
    ------
    ConfigError
        A number is larger than its split.
    """
    faults = FaultCollector()
    for stage, section in sections.items():
        for option, split in SAMPLE_COUNT_SPLITS.items():
            count, available = section.get(option), len(getattr(data, split))
            if count is not None and count > available:
                faults.add(
                    f"{stage}.{option}: got {count}, but the {split} split has {available} samples; set it to at most "
                    f"{available}, or leave it out"
                )
    faults.raise_all()


def stage_section(config: Path, run: RunConfig, stage: str) -> dict[str, Any]:
    """Return the options that the user set for a stage, with paths resolved by `resolve_paths`."""
    section = getattr(run, stage)
    default = {"hosts": "hosts.yaml"} if stage == "benchmark" and section.get("where") else {}
    return resolve_paths(config, {**default, **section})


def resolve_paths(config: Path, section: dict[str, Any]) -> dict[str, Any]:
    """Resolve relative paths of a section against the folder of the config, so that a kernel can run in any folder."""

    def resolved(key: str, value: Any) -> Any:
        if isinstance(value, dict) and key in ("student", "pretrained"):
            return resolve_paths(config, value)
        if isinstance(value, list):
            return [resolve_paths(config, item) if isinstance(item, dict) else item for item in value]
        if (
            key in ("path", "file", "cache", "tokenizer", "hosts")
            and isinstance(value, str)
            and value
            and value[0] not in "/~$"
        ):
            return str(config.resolve().parent / value)
        return value

    return {key: resolved(key, value) for key, value in section.items()}


def with_reference_models(path: Path, run: RunConfig) -> RunConfig:
    """Add the sizes and digests of the reference models that the budget names.

    Raises
    ------
    ConfigError
        The budget names a file that is not in `benchmark.rivals`, or a target that the run does not have.
    """
    if run.budget.is_plain:
        return run
    files = _files_by_name(stage_section(path, run, "benchmark").get("rivals"))
    faults = FaultCollector()
    for field, limit in run.budget.relative_limits():
        if limit.of != BASELINE and limit.of not in files:
            available = f"it names {', '.join(sorted(files))}" if files else "it names none"
            faults.add(
                f"{field}.of: got {limit.of!r}, which is not a file of benchmark.rivals ({available}); name one of "
                f"its files, or {BASELINE}"
            )
    for target in run.budget.targets:
        if target not in run.targets:
            faults.add(f"budget.targets.{target}: this run has the targets {', '.join(run.targets)}; leave it out")
    faults.raise_all()
    references = {
        name: rival for name, rival in ((name, _reference_model(file)) for name, file in files.items()) if rival
    }
    try:
        return run.model_copy(update={"budget": run.budget.with_reference_models(references)})
    except ValueError as error:
        raise ConfigError(f"budget.{error}") from None


def check_budget_references(budget: Budget, stages: Mapping[str, Any]) -> None:
    """Check that the run makes each reference of the budget, and times it on the machine whose latencies decide.

    Raises
    ------
    ConfigError
        A reference is not converted, or is not timed on the devices that decide.
    """
    converted = stages["convert"]
    converts_baseline = "baseline" in converted.models and "fp32" in converted.precisions
    device_class = stages["benchmark"].where
    faults = FaultCollector()
    for field, limit in budget.relative_limits():
        if limit.of == BASELINE and not converts_baseline:
            faults.add(
                f"{field}.of and convert disagree: {BASELINE} is its float file on each target, and convert makes "
                f"{', '.join(converted.models)} in {', '.join(converted.precisions)}; add baseline and fp32 to convert"
            )
        elif limit.of != BASELINE and device_class and field.endswith("latency_p50"):
            faults.add(
                f"{field}.of and benchmark.where disagree: {limit.of} is timed on this machine, and devices of class "
                f"{device_class} decide; write of: {BASELINE}, or latency_p50_ms"
            )
    faults.raise_all()


def _files_by_name(section: Any) -> dict[str, dict[str, Any]]:
    """Index the files by name. Anything malformed is skipped here and reported by the stage itself."""
    entries = [each for each in section if isinstance(each, dict)] if isinstance(section, list) else []
    return {PurePath(each["path"]).name: each for each in entries if isinstance(each.get("path"), str)}


def _reference_model(file: dict[str, Any]) -> ReferenceModel | None:
    """Return the facts about a file, or None if it cannot be read. The check of the stage then reports why."""
    try:
        opened = model_file.open_file(expand_path(file["path"], "benchmark.rivals"))
        members = detect.members(opened.path, opened.kind)
        return ReferenceModel(file, opened.sha256, sum(each.stat().st_size for each in members))
    except (EdgekitError, OSError):
        return None
