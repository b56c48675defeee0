"""What the distill stage kept, for the stages that fine-tune after it: its loss and its teacher, or labels alone."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from edgekit.core.artifacts import Artifact
from edgekit.core.config import TuneWith
from edgekit.core.errors import ModelError
from edgekit.models.features import Features
from edgekit.models.spec import ModelSpec
from edgekit.training import losses
from edgekit.training.losses import LossOptions, hints, soft_targets
from edgekit.training.objective import Distillation
from edgekit.training.teachers.ensemble import Ensemble
from edgekit.training.teachers.from_artifact import RECORD, chosen_teacher
from edgekit.training.teachers.model_file import TeacherFile


@dataclass(frozen=True)
class Tuning:
    """How a student is fine-tuned.

    distillation: None where it is by labels alone
    row: for the record: `loss` with its `options` and `teacher`, all None for labels alone, and the `reason`
    """

    distillation: Distillation | None
    row: dict[str, Any]


def tuning(
    distill: Artifact,
    module: nn.Module,
    spec: ModelSpec,
    cache_folder: Path | None,
    tune_with: TuneWith = "distilled",
) -> Tuning:
    """As the student was trained that `distill` kept; its teacher's logits are remembered in `cache_folder`.

    Where that loss compares feature maps, and `module`, of `spec`, shows none of the teacher's sizes,
    the loss goes on without the maps. With `tune_with` labels it is by these alone, whatever was kept.
    """
    if tune_with == "labels":
        return Tuning(None, _row(None, None, "tune_with is labels"))
    decided = json.loads(distill.file(RECORD).read_text(encoding="utf-8"))
    [kept] = [row for row in decided["students"] if row["kept"]]
    teacher_name = decided["teacher"]["name"]
    if kept["options"] is None:
        return Tuning(None, _row(None, None, f"distill kept the student that {teacher_name} did not teach"))
    teacher, options = chosen_teacher(distill), losses.parse(kept["options"])
    reason = f"distill kept the student that {options.loss} made"
    if all(row["options"] for row in decided["students"]):
        reason = f"{reason}, and trained none by labels alone"
    if losses.needs_features(options) and (why := without_maps(teacher, teacher_name, module, spec)):
        reason = f"{reason}, and here it goes on without feature maps: {why}"
        options = without_features(options)
    return Tuning(Distillation(teacher, options, cache_folder), _row(options, teacher_name, reason))


def untuned(reason: str) -> dict[str, Any]:
    """The row of `Tuning` where nothing is fine-tuned."""
    return _row(None, None, reason)


def without_maps(teacher: nn.Module | TeacherFile, name: str, module: nn.Module, spec: ModelSpec) -> str:
    """Why the teacher's feature maps cannot be compared with the module's; empty where they can."""
    if isinstance(teacher, TeacherFile):
        return f"the best teacher, {name}, is a file: its feature maps cannot be read"
    if isinstance(teacher, Ensemble):
        return f"the teacher, the {name}, is several networks: each has feature maps of its own"
    try:
        takes = spec.input_shape, spec.takes_ids
        with Features(module, *takes) as learnt, Features(teacher, *takes) as shown:
            hints.paired(learnt(), shown())
    except ModelError as error:
        return str(error)
    return ""


def without_features(options: LossOptions) -> LossOptions:
    """The part of a loss that compares logits: soft targets, with what they share by name."""
    shared = soft_targets.Options.model_fields.keys() & type(options).model_fields.keys() - {"loss"}
    return soft_targets.Options.model_validate({name: getattr(options, name) for name in shared})


def _row(options: LossOptions | None, teacher: str | None, reason: str) -> dict[str, Any]:
    return {
        "loss": options.loss if options else None,
        "options": options.model_dump() if options else None,
        "teacher": teacher,
        "reason": reason,
    }
