"""Run the distill stage: train the student with each loss and with the labels alone, and select the best.

All trainings have the same number of epochs, and they are compared on the validation split.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

from edgekit.core import artifacts, progress, replay
from edgekit.core.artifacts import Artifact
from edgekit.core.schema.training import StudentRow
from edgekit.core.tasks import SampleResults
from edgekit.data import Data
from edgekit.models import reparameterize, store
from edgekit.models.cost import cost
from edgekit.models.eager import eager_input
from edgekit.models.from_artifact import open_model, spec_for
from edgekit.stages.distill import training
from edgekit.stages.distill.config import LIBRARIES, DistillConfig
from edgekit.stages.distill.selection import select_student, selection_metrics, write_evidence
from edgekit.stages.distill.shortlist import time_candidates
from edgekit.stages.distill.teacher import Teacher, best_teacher, join_teachers, open_teachers
from edgekit.stages.distill.training import LABELS_ALONE, StudentTrainer, TrainedStudent, best_so_far
from edgekit.training import losses, parallel_trainings, resume
from edgekit.training.fine_tuning import feature_maps_obstacle
from edgekit.training.losses import LossOptions
from edgekit.training.predict import sample_scores
from edgekit.training.resume import ResumeFolder
from edgekit.training.teachers.from_artifact import RECORD


def distill(source: Artifact, data: Data, config: DistillConfig, out: Path) -> Artifact:
    """Run the distill stage; see `edgekit.stages.distill`."""
    artifacts.begin(out)
    resume_folder = resume.folder_for(out, "distill", source, data.digest, config.model_dump(), LIBRARIES)
    baseline, baseline_spec = open_model(source)
    steps = baseline_spec.preprocess
    baseline_scores = sample_scores(baseline, data.validation, steps, data.task)
    recorded_choice = replay.read(source.path.parent, "distill")
    shortlist = (
        time_candidates(source.path / "model", data, steps, config, resume_folder, recorded_choice)
        if config.candidates
        else None
    )
    teachers = open_teachers(source, data, config, resume_folder)
    teacher = best_teacher(teachers) if config.ensemble == "none" else join_teachers(teachers, data, config.ensemble)
    selection = select_student(shortlist, data, config, resume_folder, baseline_scores) if shortlist else None
    trainer = selection.trainer if selection else _single_student(data, steps, config, resume_folder)
    spec = trainer.spec
    loss_options, skipped = _usable_losses(config.loss_options(), teacher, spec)
    trained_by_labels = selection.student if selection else None
    stopped = training.stop_worse_losses(trainer, loss_options, teacher)
    needs_labels_alone = trained_by_labels is None and (config.lone_student or not loss_options)
    planned = [
        *([None] if needs_labels_alone else []),
        *(options for options in loss_options if options.loss not in stopped),
    ]
    students = [trained_by_labels] if trained_by_labels else []
    parallel_trainings.train_in_parallel(
        [trainer.planned_training(options, config.epochs, teacher) for options in planned], data, resume_folder.folder
    )
    for options in progress.track(planned, "training", best=lambda: best_so_far(students)):
        students.append(
            trainer.train_with_loss(options, teacher) if options else trainer.train_with_labels(config.epochs)
        )
    distilled = [student for student in students if student.name != LABELS_ALONE]
    by_labels = next((student for student in students if student.name == LABELS_ALONE), None)
    selected = max([*distilled, *_as_list(by_labels)], key=lambda student: student.accuracy)
    students = [
        *_as_list(by_labels),
        *(_student_named(options.loss, [*distilled, *stopped.values()]) for options in loss_options),
    ]

    check_inputs = eager_input(data.validation.x[: reparameterize.COMPARED_SAMPLES], steps)
    module, spec, merge_result = reparameterize.merge_and_compare(selected.module.cpu(), spec, check_inputs)
    store.save(out / "model", module, spec)
    decision = {
        "kept": selected.name,
        "accuracy": {student.name: student.accuracy for student in students},
        "teacher": {**teacher.row(), **teacher.save(out)},
        "teachers": [{**each.row(), "teaches": each is teacher} for each in _listed_teachers(teachers, teacher)],
        "students": [_row(student, by_labels, teacher, selected, baseline_scores) for student in students],
        "skipped": skipped,
        "reason": _explain_choice(selected, by_labels, distilled, teacher),
    }
    choice_record: dict[str, Any] = {}
    if shortlist and selection:
        choice_record = {"candidates": selection.rows, "measured": shortlist.choice}
        write_evidence(shortlist, config, out)
    artifacts.write_json(out / RECORD, {**decision, **choice_record})
    metrics = {
        **decision,
        **selection_metrics(shortlist, selection.rows if selection else [], config),
        "candidate_history": selection.history if selection else {},
        "student_cost": asdict(cost(module, spec.input_shape, spec.takes_ids)),
        **({"reparameterized": merge_result.row()} if merge_result else {}),
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


def _single_student(
    data: Data, preprocess: list[dict[str, Any]], config: DistillConfig, resume_folder: ResumeFolder
) -> StudentTrainer:
    """Return the trainer of the student in a config without candidates."""
    assert config.student is not None
    return StudentTrainer(
        spec_for(data, config.student.builder, config.student.kwargs, preprocess, pretrained=config.student.pretrained),
        data,
        config,
        resume_folder,
    )


def _usable_losses(
    loss_options: list[LossOptions], teacher: Teacher, spec: store.ModelSpec
) -> tuple[list[LossOptions], dict[str, str]]:
    """Return the losses that this teacher and this student support, and for each other loss why it cannot be used."""
    reason = ""
    if any(losses.needs_features(options) for options in loss_options):
        reason = feature_maps_obstacle(teacher.model, teacher.name, store.build(spec), spec)
    skipped = {options.loss: reason for options in loss_options if reason and losses.needs_features(options)}
    return [options for options in loss_options if options.loss not in skipped], skipped


def _listed_teachers(teachers: list[Teacher], teacher: Teacher) -> list[Teacher]:
    """Return all teachers, including the ensemble if it teaches."""
    return teachers if any(each is teacher for each in teachers) else [*teachers, teacher]


def _student_named(name: str, students: list[TrainedStudent]) -> TrainedStudent:
    return next(student for student in students if student.name == name)


def _as_list(student: TrainedStudent | None) -> list[TrainedStudent]:
    return [] if student is None else [student]


def _row(
    student: TrainedStudent,
    by_labels: TrainedStudent | None,
    teacher: Teacher,
    selected: TrainedStudent,
    baseline: SampleResults,
) -> StudentRow:
    gain = student.accuracy - by_labels.accuracy if by_labels else None
    gap = teacher.accuracy - by_labels.accuracy if by_labels else 0.0
    comparison = "is better" if selected.accuracy > student.accuracy else "is as good"
    row = {
        "name": student.name,
        "options": student.options,
        "validation_accuracy": student.accuracy,
        "gain_pp": None if gain is None else 100 * gain,
        "gap_closed": gain / gap if gain is not None and gap > 0 and student is not by_labels else None,
        "kept": student is selected,
        "reason": ""
        if student is selected
        else student.stopped or f"{selected.name} {comparison}, {selected.accuracy:.2%}",
        **student.drop_below(baseline),
    }
    return cast("StudentRow", row)


def _explain_choice(
    selected: TrainedStudent, by_labels: TrainedStudent | None, distilled: list[TrainedStudent], teacher: Teacher
) -> str:
    if not distilled:
        return f"no loss could be tried with {teacher.name}: the student trained with the labels alone is kept"
    best_student = max(distilled, key=lambda student: student.accuracy)
    taught_by = f"on validation, taught by {teacher.name} ({teacher.accuracy:.2%})"
    if by_labels is None:
        outcome = f"{best_student.name} gave {best_student.accuracy:.2%} {taught_by}"
        return f"{outcome}; no student was trained with the labels alone"
    improvement = f"{best_student.name} moved the student from {by_labels.accuracy:.2%} to {best_student.accuracy:.2%}"
    return (
        f"{improvement} {taught_by}"
        if selected is not by_labels
        else f"{improvement} {taught_by}: no gain, so the student trained with the labels alone is kept"
    )
