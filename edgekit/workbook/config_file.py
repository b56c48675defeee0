"""A config file: its top level, the sections of its stages, and the references that its budget names."""

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
from edgekit.core.tasks import Task
from edgekit.core.yaml_file import parse
from edgekit.data.paths import expand_path
from edgekit.models.files import detect
from edgekit.training import augmentations
from edgekit.training.teachers import model_file

if TYPE_CHECKING:
    from edgekit.data import Data


def split_settings(text: str) -> list[str]:
    """`'seed=1 data.limit=2000'` → its parts; a space inside a value is kept, a part begins with `key=`."""
    if text.startswith("["):
        return [str(part) for part in json.loads(text)]
    return [part.strip() for part in re.split(r"\s+(?=[A-Za-z_][\w.]*=)", text.strip()) if part.strip()]


def join_settings(parts: list[str]) -> str:
    """The opposite of `split_settings`; as JSON where a value would be torn apart."""
    text = " ".join(parts)
    return text if split_settings(text) == parts else json.dumps(parts)


def override(given: dict[str, Any], setting: str) -> None:
    """Put one `key.key=value` into the values of a file; ConfigError for what is none."""
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
    section = given
    for part in parents:
        inner = section.setdefault(part, {})
        if not isinstance(inner, dict):
            raise ConfigError(f"--set {key}: {part} holds {inner!r}, not a section")
        section = inner
    section[last] = value


Device = Literal["auto", "cpu", "cuda", "mps"]


class RunConfig(StrictModel):
    """The top level of a config file; the sections of the stages are checked by the stages themselves."""

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
    budget: Budget = Field(default_factory=lambda: Budget.model_validate({}), description="limits of a variant")
    targets: list[Target] = Field(
        default_factory=lambda: list(get_args(Target)),
        min_length=1,
        description="formats to convert to, each once; one that is named must be made, and by default what can be is",
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
        """Whether the user wrote `targets`: then each of them is a demand, and otherwise a wish."""
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


SAMPLES_OF = {
    "calibration_samples": "calibration",
    "check_samples": "validation",
    "golden_samples": "validation",
    "sensitivity_samples": "validation",
    "taylor_samples": "train",
}
"""Options of stages that say how many samples of which split are used."""


def stage_config(stage: str) -> type[StageConfig]:
    """Return the options class of a stage, `PruneConfig` for "prune". This imports no framework."""
    module = importlib.import_module(f"edgekit.stages.{stage}")
    config: type[StageConfig] = getattr(module, f"{stage.capitalize()}Config")
    return config


def own_fields(config: type[StageConfig]) -> list[str]:
    """Names of the options that stand under the stage's own name, without those shared by all stages."""
    return [name for name in config.model_fields if name not in SHARED_FIELDS]


def is_scalar(value: object) -> bool:
    """True for what a notebook's `parameters` cell may hold."""
    return isinstance(value, bool | int | float | str)


def shared_options(run: RunConfig) -> dict[str, Any]:
    """Options shared by all stages; `threads: 0` and each `auto` become this machine's, which affects last bits."""
    shared, where = {name: getattr(run, name) for name in SHARED_FIELDS}, device(run.device)
    return {
        **shared,
        "threads": run.threads or available_cores(),
        "device": where,
        "training": precision.resolve_precision(run.training, where),
    }


@functools.cache
def device(name: str) -> str:
    """What `auto` is here; any other name stays. A torch built for the CPU alone is not imported to find out."""
    if name != "auto":
        return name
    if metadata.version("torch").endswith("+cpu"):
        return "cpu"
    from edgekit.training.predict import pick_device

    return pick_device(name).type


def for_stage(stage: str, run: RunConfig, shared: dict[str, Any]) -> dict[str, Any]:
    """Those options for one stage: a limit that devices are held to says nothing about candidates timed here."""
    if stage == "distill" and run.benchmark.get("where"):
        return {**shared, "budget": run.budget.without_latency()}
    return shared


def parse_stage(stage: str, section: dict[str, Any], shared: dict[str, Any]) -> StageConfig:
    """Check one stage's section, with the shared options it asks for filled in; ConfigError lists all faults."""
    config, faults = stage_config(stage), FaultCollector()
    for key in section:
        if key in SHARED_FIELDS:
            faults.add(f"{stage}.{key}: stands at the top level of the config, for all stages; move it there")
        elif key not in config.model_fields:
            faults.add(f"{stage}.{key}: unknown key, {suggest(str(key), own_fields(config))}")
    own = {name: value for name, value in section.items() if name in own_fields(config)}
    wanted = {name: value for name, value in shared.items() if name in config.model_fields}
    checked: StageConfig | None = faults.collect(lambda: validate(config, {**own, **wanted}, stage))
    if isinstance(checked, TrainingStageConfig):
        faults.collect(lambda: augmentations.parse_all(checked.augmentations, f"{stage}.{augmentations.FIELD}"))
    faults.raise_all()
    assert checked is not None
    return checked


def check_sample_counts(data: Data, sections: Mapping[str, Mapping[str, Any]]) -> None:
    """Check the numbers of samples that the user wrote, by stage. A default is as many as there are.

    Raises
    ------
    ConfigError
        A number is larger than its split.
    """
    faults = FaultCollector()
    for stage, section in sections.items():
        for option, split in SAMPLES_OF.items():
            count, available = section.get(option), len(getattr(data, split))
            if count is not None and count > available:
                faults.add(
                    f"{stage}.{option}: got {count}, and the {split} split has {available} samples; set it to at most "
                    f"{available}, or leave it out"
                )
    faults.raise_all()


def section_of(config: Path, run: RunConfig, stage: str) -> dict[str, Any]:
    """The options that are given for a stage, with paths as `beside` makes them."""
    given = getattr(run, stage)
    default = {"hosts": "hosts.yaml"} if stage == "benchmark" and given.get("where") else {}
    return beside(config, {**default, **given})


def beside(config: Path, section: dict[str, Any]) -> dict[str, Any]:
    """The section with relative paths taken from the config's folder, whatever folder a kernel runs in."""

    def placed(key: str, value: Any) -> Any:
        if isinstance(value, list):
            return [beside(config, each) if isinstance(each, dict) else each for each in value]
        if (
            key in ("path", "cache", "tokenizer", "hosts")
            and isinstance(value, str)
            and value
            and value[0] not in "/~$"
        ):
            return str(config.resolve().parent / value)
        return value

    return {key: placed(key, value) for key, value in section.items()}


def referenced(path: Path, run: RunConfig) -> RunConfig:
    """The run with what its budget needs to know of rivals; ConfigError for one that benchmark.rivals does not name."""
    if run.budget.is_plain:
        return run
    named = _named(section_of(path, run, "benchmark").get("rivals"))
    faults = FaultCollector()
    for place, limit in run.budget.relative_limits():
        if limit.of != BASELINE and limit.of not in named:
            known = f"it names {', '.join(sorted(named))}" if named else "it names none"
            faults.add(
                f"{place}.of: got {limit.of!r}, which is no file of benchmark.rivals ({known}); "
                f"name a file of it, or {BASELINE}"
            )
    for target in run.budget.targets:
        if target not in run.targets:
            faults.add(f"budget.targets.{target}: this run has the targets {', '.join(run.targets)}; leave it out")
    faults.raise_all()
    found = {name: rival for name, rival in ((name, _rival(file)) for name, file in named.items()) if rival}
    try:
        return run.model_copy(update={"budget": run.budget.with_reference_models(found)})
    except ValueError as error:
        raise ConfigError(f"budget.{error}") from None


def agree_with_references(budget: Budget, stages: Mapping[str, Any]) -> None:
    """ConfigError for a reference that this run does not make, or does not time where latencies decide."""
    converted = stages["convert"]
    makes = "baseline" in converted.models and "fp32" in converted.precisions
    where = stages["benchmark"].where
    faults = FaultCollector()
    for place, limit in budget.relative_limits():
        if limit.of == BASELINE and not makes:
            faults.add(
                f"{place}.of and convert disagree: {BASELINE} is its float file on each target, and convert makes "
                f"{', '.join(converted.models)} in {', '.join(converted.precisions)}; add baseline and fp32 there"
            )
        elif limit.of != BASELINE and where and place.endswith("latency_p50"):
            faults.add(
                f"{place}.of and benchmark.where disagree: {limit.of} is timed on this machine, and devices of class "
                f"{where} decide; write of: {BASELINE}, or latency_p50_ms"
            )
    faults.raise_all()


def _named(rivals: Any) -> dict[str, dict[str, Any]]:
    """By file name; what is no list of files is a fault that the stage itself reports."""
    listed = [each for each in rivals if isinstance(each, dict)] if isinstance(rivals, list) else []
    return {PurePath(each["path"]).name: each for each in listed if isinstance(each.get("path"), str)}


def _rival(file: dict[str, Any]) -> ReferenceModel | None:
    """None for a file that cannot be read: the stage's own check of its rivals says why."""
    try:
        found = model_file.open_file(expand_path(file["path"], "benchmark.rivals"))
        members = detect.members(found.path, found.kind)
        return ReferenceModel(file, found.sha256, sum(each.stat().st_size for each in members))
    except (EdgekitError, OSError):
        return None
