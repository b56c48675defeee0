"""The student, trained with each loss, and with labels alone unless the config leaves that out; the best is kept.

All at equal epochs, and judged on validation.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

from edgekit.core import artifacts, progress, replay
from edgekit.core.artifacts import Artifact
from edgekit.core.schema.training import StudentRow
from edgekit.core.tasks import Answered
from edgekit.data import Data
from edgekit.models import reparameterize, store
from edgekit.models.cost import cost
from edgekit.models.eager import eager_input
from edgekit.models.from_artifact import open_model, spec_for
from edgekit.stages.distill import training
from edgekit.stages.distill.config import LIBRARIES, Config
from edgekit.stages.distill.selection import select, selection_metrics, write_evidence
from edgekit.stages.distill.shortlist import shorten
from edgekit.stages.distill.teacher import Candidate, best, candidates, together
from edgekit.stages.distill.training import ALONE, Student, Trainer, best_so_far
from edgekit.training import losses, resume, side_by_side
from edgekit.training.fine_tuning import without_maps
from edgekit.training.losses import LossOptions
from edgekit.training.predict import answered
from edgekit.training.resume import ResumeFolder
from edgekit.training.teachers.from_artifact import RECORD


def distill(source: Artifact, data: Data, config: Config, out: Path) -> Artifact:
    """See `edgekit.stages.distill`."""
    artifacts.begin(out)
    place = resume.of(out, "distill", source, data.digest, config.model_dump(), LIBRARIES)
    baseline, baseline_spec = open_model(source)
    steps = baseline_spec.preprocess
    before = answered(baseline, data.validation, steps, data.task)
    recorded = replay.read(source.path.parent, "distill")
    shortlist = shorten(source.path / "model", data, steps, config, place, recorded) if config.candidates else None
    teachers = candidates(source, data, config, place)
    teacher = best(teachers) if config.ensemble == "none" else together(teachers, data, config.ensemble)
    selection = select(shortlist, data, config, place, before) if shortlist else None
    trainer = selection.trainer if selection else _single_student(data, steps, config, place)
    spec = trainer.spec
    wanted, skipped = _usable_losses(config.loss_options(), teacher, spec)
    earlier = selection.alone if selection else None
    ended = training.stopped_students(trainer, wanted, teacher)
    lone = earlier is None and (config.lone_student or not wanted)
    ways = [*([None] if lone else []), *(options for options in wanted if options.loss not in ended)]
    students = [earlier] if earlier else []
    side_by_side.ahead([trainer.to_be_made(options, config.epochs, teacher) for options in ways], data, place.folder)
    for options in progress.each(ways, "training", best=lambda: best_so_far(students)):
        students.append(
            trainer.train_with_loss(options, teacher) if options else trainer.train_with_labels(config.epochs)
        )
    distilled = [student for student in students if student.name != ALONE]
    alone = next((student for student in students if student.name == ALONE), None)
    kept = max([*distilled, *_given(alone)], key=lambda student: student.accuracy)
    students = [*_given(alone), *(_named(options.loss, [*distilled, *ended.values()]) for options in wanted)]

    looked_at = eager_input(data.validation.x[: reparameterize.SAMPLES], steps)
    module, spec, merged = reparameterize.merge(kept.module.cpu(), spec, looked_at)
    store.save(out / "model", module, spec)
    decision = {
        "kept": kept.name,
        "accuracy": {student.name: student.accuracy for student in students},
        "teacher": {**teacher.row(), **teacher.save(out)},
        "teachers": [{**each.row(), "teaches": each is teacher} for each in _shown(teachers, teacher)],
        "students": [_row(student, alone, teacher, kept, before) for student in students],
        "skipped": skipped,
        "reason": _reason(kept, alone, distilled, teacher),
    }
    selected: dict[str, Any] = {}
    if shortlist and selection:
        selected = {"candidates": selection.rows, "measured": shortlist.measured}
        write_evidence(shortlist, config, out)
    artifacts.write_json(out / RECORD, {**decision, **selected})
    metrics = {
        **decision,
        **selection_metrics(shortlist, selection.rows if selection else [], config),
        "candidate_history": selection.history if selection else {},
        "student_cost": asdict(cost(module, spec.input_shape, spec.takes_ids)),
        **({"reparameterized": merged.row()} if merged else {}),
        "history": {student.name: student.history for student in students},
        "teacher_history": {each.name: list(each.history) for each in teachers if each.history},
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


def _single_student(data: Data, preprocess: list[dict[str, Any]], config: Config, place: ResumeFolder) -> Trainer:
    """The one student of a config without candidates."""
    assert config.student is not None
    return Trainer(spec_for(data, config.student.builder, config.student.kwargs, preprocess), data, config, place)


def _usable_losses(
    wanted: list[LossOptions], teacher: Candidate, spec: store.ModelSpec
) -> tuple[list[LossOptions], dict[str, str]]:
    """The losses that this teacher and this student can serve, and why the others cannot be."""
    why = ""
    if any(losses.needs_features(options) for options in wanted):
        why = without_maps(teacher.model, teacher.name, store.build(spec), spec)
    skipped = {options.loss: why for options in wanted if why and losses.needs_features(options)}
    return [options for options in wanted if options.loss not in skipped], skipped


def _shown(teachers: list[Candidate], teacher: Candidate) -> list[Candidate]:
    """Each teacher, and the one that they are together, where that teaches."""
    return teachers if any(each is teacher for each in teachers) else [*teachers, teacher]


def _named(name: str, students: list[Student]) -> Student:
    return next(student for student in students if student.name == name)


def _given(alone: Student | None) -> list[Student]:
    return [] if alone is None else [alone]


def _row(student: Student, alone: Student | None, teacher: Candidate, kept: Student, baseline: Answered) -> StudentRow:
    gain = student.accuracy - alone.accuracy if alone else None
    gap = teacher.accuracy - alone.accuracy if alone else 0.0
    better = "is better" if kept.accuracy > student.accuracy else "is as good"
    row = {
        "name": student.name,
        "options": student.options,
        "validation_accuracy": student.accuracy,
        "gain_pp": None if gain is None else 100 * gain,
        "gap_closed": gain / gap if gain is not None and gap > 0 and student is not alone else None,
        "kept": student is kept,
        "reason": "" if student is kept else student.stopped or f"{kept.name} {better}, {kept.accuracy:.2%}",
        **student.against(baseline),
    }
    return cast("StudentRow", row)


def _reason(kept: Student, alone: Student | None, distilled: list[Student], teacher: Candidate) -> str:
    if not distilled:
        return f"no loss could be tried with {teacher.name}: the lone student goes on"
    best_student = max(distilled, key=lambda student: student.accuracy)
    taught = f"on validation, taught by {teacher.name} ({teacher.accuracy:.2%})"
    if alone is None:
        return f"{best_student.name} gave {best_student.accuracy:.2%} {taught}; no student was trained by labels alone"
    moved = f"{best_student.name} moved the student from {alone.accuracy:.2%} to {best_student.accuracy:.2%}"
    return f"{moved} {taught}" if kept is not alone else f"{moved} {taught}: no gain, so the lone student is kept"
