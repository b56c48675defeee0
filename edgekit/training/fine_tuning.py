"""Fine-tuning in the stages after distill, with the loss and the teacher that distill chose, or with labels alone."""

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
    """How a network is fine-tuned.

    `distillation` is None for the labels alone. `row` is the record: `loss`, its `options` and `teacher` (all None for
    the labels alone), and the `reason`.
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
    """Return how to fine-tune `module`: with the loss and the teacher of the student that `distill` selected.

    If that loss compares feature maps but the teacher has none that fit `module` (built from `spec`), only the logits
    are compared. With `tune_with: labels`, or if the selected student was trained on the labels alone, no teacher is
    used. The teacher's logits are cached in `cache_folder`.
    """
    if tune_with == "labels":
        return Tuning(None, _row(None, None, "tune_with is labels"))
    decision = json.loads(distill.file(RECORD).read_text(encoding="utf-8"))
    [chosen_student] = [row for row in decision["students"] if row["kept"]]
    teacher_name = decision["teacher"]["name"]
    if chosen_student["options"] is None:
        return Tuning(None, _row(None, None, "distill chose the student that was trained on the labels alone"))
    teacher, options = chosen_teacher(distill), losses.parse(chosen_student["options"])
    reason = f"distill chose the student trained with {options.loss}"
    if all(row["options"] for row in decision["students"]):
        reason = f"{reason}, and trained none on the labels alone"
    if losses.needs_features(options) and (obstacle := feature_maps_obstacle(teacher, teacher_name, module, spec)):
        reason = f"{reason}; feature maps are not compared here: {obstacle}"
        options = without_features(options)
    return Tuning(Distillation(teacher, options, cache_folder), _row(options, teacher_name, reason))


def untuned(reason: str) -> dict[str, Any]:
    """Return the record for a network that is not fine-tuned."""
    return _row(None, None, reason)


def feature_maps_obstacle(teacher: nn.Module | TeacherFile, name: str, module: nn.Module, spec: ModelSpec) -> str:
    """Return why the teacher's feature maps cannot be compared with those of the module; empty if they can."""
    if isinstance(teacher, TeacherFile):
        return f"the best teacher, {name}, is a file, so its feature maps cannot be read"
    if isinstance(teacher, Ensemble):
        return f"the teacher, the {name}, is several networks, and each has feature maps of its own"
    try:
        input_spec = spec.input_shape, spec.takes_ids
        with Features(module, *input_spec) as student_maps, Features(teacher, *input_spec) as teacher_maps:
            hints.matching_maps(student_maps(), teacher_maps())
    except ModelError as error:
        return str(error)
    return ""


def without_features(options: LossOptions) -> LossOptions:
    """Return the options of soft targets, with the values of `options` for those that both losses have."""
    shared = soft_targets.Options.model_fields.keys() & type(options).model_fields.keys() - {"loss"}
    return soft_targets.Options.model_validate({name: getattr(options, name) for name in shared})


def _row(options: LossOptions | None, teacher: str | None, reason: str) -> dict[str, Any]:
    return {
        "loss": options.loss if options else None,
        "options": options.model_dump() if options else None,
        "teacher": teacher,
        "reason": reason,
    }
