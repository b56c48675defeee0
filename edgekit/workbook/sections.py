"""The sections of a config: the options of each stage, checked by that stage, with those that all stages share."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.core import precision
from edgekit.core.config import SHARED_FIELDS, StageConfig, TrainingStage, check, cores, suggest
from edgekit.core.errors import Faults
from edgekit.training import augmentations
from edgekit.workbook.run_config import RunConfig

if TYPE_CHECKING:
    from edgekit.data import Data

SAMPLES_OF = {
    "calibration_samples": "calibration",
    "check_samples": "validation",
    "golden_samples": "validation",
    "sensitivity_samples": "validation",
    "taylor_samples": "train",
}
"""Options of stages that say how many samples of which split are used."""


def stage_config(stage: str) -> type[StageConfig]:
    """The `Config` of a stage; importing it starts no framework."""
    config: type[StageConfig] = importlib.import_module(f"edgekit.stages.{stage}").Config
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
        "threads": run.threads or cores(),
        "device": where,
        "training": precision.resolved(run.training, where),
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
    config, faults = stage_config(stage), Faults()
    for key in section:
        if key in SHARED_FIELDS:
            faults.add(f"{stage}.{key}: stands at the top level of the config, for all stages; move it there")
        elif key not in config.model_fields:
            faults.add(f"{stage}.{key}: unknown key, {suggest(str(key), own_fields(config))}")
    own = {name: value for name, value in section.items() if name in own_fields(config)}
    wanted = {name: value for name, value in shared.items() if name in config.model_fields}
    checked: StageConfig | None = faults.of(lambda: check(config, {**own, **wanted}, stage))
    if isinstance(checked, TrainingStage):
        faults.of(lambda: augmentations.parse_all(checked.augmentations, f"{stage}.{augmentations.FIELD}"))
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
    faults = Faults()
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
