"""The student, trained with labels alone and with each loss, at equal epochs; the best on validation is kept."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from edgekit import artifact as artifacts
from edgekit import losses, unfinished
from edgekit.artifact import Artifact
from edgekit.data import Data
from edgekit.errors import ModelError
from edgekit.losses import LossOptions, hints
from edgekit.models import store
from edgekit.models.cost import cost
from edgekit.models.features import Features
from edgekit.models.handover import open_model, spec_for
from edgekit.stages.distill import LIBRARIES, Config
from edgekit.stages.distill.teacher import Candidate, best, candidates
from edgekit.teachers.chosen import RECORD
from edgekit.teachers.file import TeacherFile
from edgekit.teaching import Lesson
from edgekit.train import fit, predictions
from edgekit.unfinished import Unfinished

ALONE = "alone"


@dataclass(frozen=True)
class Student:
    """One training of the student: the loss's name or "alone"; `right` (n,) bool over the validation split."""

    name: str
    module: nn.Module
    right: np.ndarray
    history: list[dict[str, Any]]
    options: dict[str, Any] | None = None

    @property
    def accuracy(self) -> float:
        """On validation, a fraction."""
        return float(np.mean(self.right))


def distill(source: Artifact, data: Data, config: Config, out: Path) -> Artifact:
    """See `edgekit.stages.distill`."""
    artifacts.begin(out)
    place = unfinished.of(out, "distill", source, data.digest, config.model_dump(), LIBRARIES)
    baseline, baseline_spec = open_model(source)
    spec = spec_for(data, config.student.builder, config.student.kwargs, baseline_spec.preprocess)
    taught_by = candidates(source, data, config, place)
    teacher = best(taught_by)
    wanted, skipped = _possible(config.lessons(), teacher, spec)
    alone = _train(spec, data, config, place, None, None)
    taught = [_train(spec, data, config, place, options, teacher) for options in wanted]
    students = [alone, *taught]
    kept = max([*taught, alone], key=lambda student: student.accuracy)
    baseline_right = predictions(baseline, data.validation.x, spec.preprocess) == data.validation.y

    store.save(out / "model", kept.module, spec)
    decision = {
        "kept": kept.name,
        "accuracy": {student.name: student.accuracy for student in students},
        "teacher": {**teacher.row(), **teacher.save(out)},
        "teachers": [{**each.row(), "teaches": each is teacher} for each in taught_by],
        "students": [
            {**_row(student, alone, teacher, kept), **_against(baseline_right, student)} for student in students
        ],
        "skipped": skipped,
        "reason": _reason(kept, alone, taught, teacher),
    }
    artifacts.write_json(out / RECORD, decision)
    metrics = {
        **decision,
        "student_cost": asdict(cost(kept.module, spec.input_shape)),
        "history": {student.name: student.history for student in students},
        "teacher_history": {each.name: list(each.history) for each in taught_by if each.history},
    }
    return artifacts.seal(
        out,
        stage="distill",
        source=source,
        data_digest=data.digest,
        config=config.model_dump(),
        metrics=metrics,
        libraries=LIBRARIES,
    )


def _possible(
    wanted: list[LossOptions], teacher: Candidate, spec: store.ModelSpec
) -> tuple[list[LossOptions], dict[str, str]]:
    """The losses that this teacher and this student can serve, and why the others cannot be: told before hours pass."""
    why = _no_features(teacher, spec) if any(losses.needs_features(options) for options in wanted) else ""
    skipped = {options.loss: why for options in wanted if why and losses.needs_features(options)}
    return [options for options in wanted if options.loss not in skipped], skipped


def _no_features(teacher: Candidate, spec: store.ModelSpec) -> str:
    """Why the teacher's feature maps cannot be compared with the student's; empty where they can."""
    if isinstance(teacher.model, TeacherFile):
        return f"the best teacher, {teacher.name}, is a file: its feature maps cannot be read"
    try:
        with (
            Features(store.build(spec), spec.input_shape) as learnt,
            Features(teacher.model, spec.input_shape) as shown,
        ):
            hints.paired(learnt(), shown())
    except ModelError as error:
        return str(error)
    return ""


def _train(
    spec: store.ModelSpec,
    data: Data,
    config: Config,
    place: Unfinished,
    options: LossOptions | None,
    teacher: Candidate | None,
) -> Student:
    name = options.loss if options else ALONE
    module = store.build(spec, seed=config.seed)
    lesson = Lesson(teacher.model, options, place.answers) if teacher and options else None
    try:
        history = fit(
            module,
            data,
            spec.preprocess,
            config,
            seed=config.seed,
            device=config.device,
            threads=config.threads,
            lesson=lesson,
            resume=place.checkpoint(f"student-{name}"),
        )
    except ModelError as error:
        raise ModelError(f"student, {name}: {error}") from error
    right = predictions(module, data.validation.x, spec.preprocess) == data.validation.y
    rows = [asdict(epoch) for epoch in history.epochs]
    return Student(name, module, right, rows, options.model_dump() if options else None)


def _row(student: Student, alone: Student, teacher: Candidate, kept: Student) -> dict[str, Any]:
    gap = teacher.accuracy - alone.accuracy
    gain = student.accuracy - alone.accuracy
    better = "is better" if kept.accuracy > student.accuracy else "is as good"
    return {
        "name": student.name,
        "options": student.options,
        "validation_accuracy": student.accuracy,
        "gain_pp": 100 * gain,
        "gap_closed": gain / gap if gap > 0 and student is not alone else None,
        "kept": student is kept,
        "reason": "" if student is kept else f"{kept.name} {better}, {kept.accuracy:.2%}",
    }


def _against(baseline_right: np.ndarray, student: Student) -> dict[str, int]:
    """What a bound on the student's drop below the baseline is taken from, see `edgekit.paired`."""
    lost, gained = baseline_right & ~student.right, ~baseline_right & student.right
    return {"lost": int(lost.sum()), "gained": int(gained.sum()), "samples": len(student.right)}


def _reason(kept: Student, alone: Student, taught: list[Student], teacher: Candidate) -> str:
    if not taught:
        return f"no loss could be tried with {teacher.name}: the lone student goes on"
    best_taught = max(taught, key=lambda student: student.accuracy)
    moved = f"{best_taught.name} moved the student from {alone.accuracy:.2%} to {best_taught.accuracy:.2%}"
    told = f"{moved} on validation, taught by {teacher.name} ({teacher.accuracy:.2%})"
    return told if kept is not alone else f"{told}: no gain, so the lone student is kept"
