"""Every option of a config, from the pydantic models that check it."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from docs.generate.tables import code, sentence, table
from docs.generate.types import kind, span
from edgekit.core.budget import RelativeLatencyLimit, RelativeSizeLimit, TargetBudget
from edgekit.core.config import (
    PATTERN_ADVICE,
    SHARED_FIELDS,
    STAGES,
    Budget,
    ModelConfig,
    NetworkConfig,
    Pretrained,
    TrainingOptions,
    TrainOptions,
)
from edgekit.core.preprocess_record import PreprocessRecord, TriedPreprocess
from edgekit.data import SourceConfig, config_class, source_names, sources
from edgekit.stages.benchmark.config import CostOptions
from edgekit.stages.bundle.config import Smoothing, StreamOptions
from edgekit.stages.distill.config import TeacherConfig
from edgekit.training import augmentations, losses
from edgekit.training.teachers.config import ModelFile
from edgekit.workbook.config_file import RunConfig, stage_config

Model = type[BaseModel]
HEADER = ("option", "type and range", "default", "meaning")
PARTS: dict[str, Model] = {
    "budget": Budget,
    "budget.latency_p50": RelativeLatencyLimit,
    "budget.size": RelativeSizeLimit,
    "budget.targets": TargetBudget,
    "model": ModelConfig,
    "model.pretrained": Pretrained,
    "preprocess_tried": PreprocessRecord,
    "preprocess_tried.tried": TriedPreprocess,
    "training": TrainingOptions,
    "distill.student": NetworkConfig,
    "distill.teachers": TeacherConfig,
    "distill.teachers.training": TrainOptions,
    "benchmark.rivals": ModelFile,
    "benchmark.cost": CostOptions,
    "bundle.smoothing": Smoothing,
    "bundle.stream": StreamOptions,
}
"""Sections inside others, by where they stand in a config."""


@dataclass(frozen=True)
class Option:
    """One option, in words. `meaning` is empty where the code does not describe it."""

    name: str
    kind: str
    span: str
    default: str
    meaning: str

    def row(self) -> tuple[str, ...]:
        """A row of the table."""
        span = f"{': ' if self.kind.startswith('text') else ', '}{self.span}" if self.span else ""
        return (code(self.name), f"{self.kind}{span}", self.default, self.meaning)


def options_of(model: Model, *, leave_out: tuple[str, ...] = ()) -> list[Option]:
    """The options of a section, in the order of its fields."""
    properties = model.model_json_schema()["properties"]
    fields = {name: field for name, field in model.model_fields.items() if name not in leave_out}
    return [
        Option(name, kind(properties[name], link=False), _span(properties[name]), _default(field), _meaning(field))
        for name, field in fields.items()
    ]


def every_section() -> Iterator[tuple[str, list[Option]]]:
    """Every section of a config with its options: the top level, its parts, sources, stages, augmentations, losses."""
    yield "top level", options_of(RunConfig)
    yield from ((name, options_of(model)) for name, model in PARTS.items())
    yield "data", options_of(SourceConfig, leave_out=("task",))
    yield from ((f"data, source: {name}", source_options(name)) for name in source_names())
    yield from ((name, stage_options(name)) for name in STAGES)
    yield from ((f"augmentations, kind: {name}", augmentation_options(name)) for name in augmentations.NAMES)
    yield from ((f"distill.losses, loss: {name}", loss_options(name)) for name in losses.NAMES)


def section(name: str) -> str:
    """The table of one section inside another."""
    return _table(options_of(PARTS[name]))


def top() -> str:
    """The table of the top level."""
    return _table(options_of(RunConfig))


def source() -> str:
    """The table of the options that every data source takes."""
    return _table(options_of(SourceConfig, leave_out=("task",)))


def data_sources() -> str:
    """A heading and a table for each data source."""
    return "\n\n".join(
        f"### `source: {name}`\n\n{_summary(module_of_source(name))}\n\n{_table(source_options(name))}"
        for name in source_names()
    )


def module_of_source(name: str) -> str:
    """The module that reads a data source."""
    return f"{sources.__name__}.{name}"


def module_of_loss(name: str) -> str:
    """The module that computes a loss."""
    return f"{losses.__name__}.{name}"


def source_options(name: str) -> list[Option]:
    """What one data source takes besides the options of all."""
    return options_of(config_class(name), leave_out=tuple(SourceConfig.model_fields))


def stage(name: str) -> str:
    """The table of one stage."""
    return f"{_summary(f'edgekit.stages.{name}')}\n\n{_table(stage_options(name))}"


def stage_options(name: str) -> list[Option]:
    """What one stage takes besides the options of the top level that it shares."""
    return options_of(stage_config(name), leave_out=SHARED_FIELDS)


def distillation_losses() -> str:
    """A heading and a table for each loss."""
    return "\n\n".join(
        f"#### `loss: {name}`\n\n{_summary(module_of_loss(name))}\n\n{_table(loss_options(name))}"
        for name in losses.NAMES
    )


def sample_augmentations() -> str:
    """A heading and a table for each augmentation."""
    return "\n\n".join(
        f"#### `kind: {name}`\n\n{_summary(module_of_augmentation(name))}\n\n{_table(augmentation_options(name))}"
        for name in augmentations.NAMES
    )


def module_of_augmentation(name: str) -> str:
    """The module of an augmentation."""
    return f"{augmentations.__name__}.{name}"


def augmentation_options(name: str) -> list[Option]:
    """What one augmentation takes."""
    return options_of(importlib.import_module(module_of_augmentation(name)).Options, leave_out=("kind",))


def loss_options(name: str) -> list[Option]:
    """What one loss takes."""
    return options_of(importlib.import_module(module_of_loss(name)).Options, leave_out=("loss",))


def _table(options: list[Option]) -> str:
    return table(HEADER, [option.row() for option in options]) if options else "No further options."


def _summary(module: str) -> str:
    """The first paragraph of the module's docstring."""
    return " ".join((importlib.import_module(module).__doc__ or "").strip().split("\n\n")[0].split())


def _span(schema: dict[str, Any]) -> str:
    parts = [schema, *schema.get("anyOf", ()), *schema.get("oneOf", ())]
    words = next((PATTERN_ADVICE[part["pattern"]] for part in parts if part.get("pattern") in PATTERN_ADVICE), "")
    return words.removeprefix("write ").removesuffix(", or nothing") or span(schema)


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True, validated_data={})
    if isinstance(value, BaseModel):
        return "its defaults"
    if value is None or value in ("", [], {}):
        return "none"
    if isinstance(value, list) and all(isinstance(entry, BaseModel) for entry in value):
        value = [entry.model_dump(exclude_defaults=True) for entry in value]
    return code(value if isinstance(value, str) else json.dumps(value))


def _meaning(field: FieldInfo) -> str:
    return sentence(field.description or "")
