"""Select the student: train the candidates on the shortlist with the labels alone, and take the most accurate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from edgekit.core import artifacts, progress
from edgekit.core.schema.training import CandidateRow, Epoch
from edgekit.core.tasks import SampleResults
from edgekit.data import Data
from edgekit.device.measure.bench import machine_facts
from edgekit.stages.distill.config import DistillConfig
from edgekit.stages.distill.shortlist import (
    CandidateNetwork,
    Shortlist,
    fastest_file,
    reason_not_trained,
    targets_without_file,
)
from edgekit.stages.distill.training import StudentTrainer, TrainedStudent, best_so_far
from edgekit.training import parallel_trainings
from edgekit.training.resume import ResumeFolder

EVIDENCE_FILE = "candidates.json"
NO_SCORES = dict.fromkeys(("validation_accuracy", "drop_pp", "lost", "gained", "samples"))


@dataclass(frozen=True)
class Selection:
    """The selected student.

    `student` is the network as it was trained with the labels alone for the selection. It is None if the network was
    selected without training, or trained for another number of epochs than the config's. `rows` has a record for each
    candidate. The records hold no latencies. They are therefore the same on every machine, except for `in_time`, which
    says whether the candidate is within the budget, and the fields that follow from it.
    """

    trainer: StudentTrainer
    student: TrainedStudent | None
    rows: list[CandidateRow]
    history: dict[str, list[Epoch]]


def select_student(
    shortlist: Shortlist, data: Data, config: DistillConfig, resume_folder: ResumeFolder, baseline: SampleResults
) -> Selection:
    """Train the candidates on the shortlist and select the most accurate one.

    If there is only one, it is selected without training. `baseline` holds the per-sample scores of the baseline on the
    validation split.
    """
    epochs = config.candidate_epochs or config.epochs
    trainers = {
        entry.title: StudentTrainer(
            entry.spec, data, config, resume_folder, f"candidate-{number}", f"candidate {entry.title}"
        )
        for number, entry in enumerate(shortlist.entries, 1)
        if entry.title in shortlist.choice["trained"]
    }
    compared_titles = list(trainers) if len(trainers) > 1 else []
    parallel_trainings.train_in_parallel(
        [trainers[title].planned_training(None, epochs) for title in compared_titles], data, resume_folder.folder
    )
    students: dict[str, TrainedStudent] = {}
    for title in progress.track(compared_titles, "candidate", best=lambda: best_so_far(students.values())):
        students[title] = trainers[title].train_with_labels(epochs)
    selected = most_accurate(shortlist.entries, {title: each.accuracy for title, each in students.items()}) or next(
        entry for entry in shortlist.entries if entry.title in trainers
    )
    rows = [_row(entry, selected, shortlist, config, students, baseline) for entry in shortlist.entries]
    trained_selected = students.get(selected.title) if epochs == config.epochs else None
    history = {title: each.history for title, each in students.items()}
    return Selection(trainers[selected.title], trained_selected, rows, history)


def most_accurate(entries: list[CandidateNetwork], accuracy: Mapping[str, float]) -> CandidateNetwork | None:
    """Return the candidate with the highest validation accuracy, or None if none was trained.

    Of equally accurate candidates, the one with the fewest multiply-adds is returned, then the first.
    """
    trained = [entry for entry in entries if entry.title in accuracy]
    return min(trained, key=lambda entry: (-accuracy[entry.title], entry.macs), default=None)


def write_evidence(shortlist: Shortlist, config: DistillConfig, out: Path) -> None:
    """Write the latencies of every file in every round, and the choice that follows from them, as evidence."""
    rows = [
        {**file.row(), "model": title, "round_p50s_ms": file.round_p50s_ms}
        for title, files in shortlist.timed.items()
        for file in files
    ]
    protocol = f"{config.rounds} rounds of {config.calls_per_round} calls, batch 1, one thread, weights untrained"
    conditions = {**machine_facts(), "protocol": protocol}
    rows += [{**each.row(), "round_p50s_ms": each.round_p50s_ms} for each in shortlist.references]
    failures = [{**asdict(one), "model": title} for title, some in shortlist.lost.items() for one in some]
    record = {
        "timed": rows,
        "lost": failures,
        "today": shortlist.measured_choice,
        "replayed": shortlist.replayed,
        "conditions": conditions,
    }
    artifacts.write_json(out / artifacts.EVIDENCE / EVIDENCE_FILE, record)


def selection_metrics(shortlist: Shortlist | None, rows: list[CandidateRow], config: DistillConfig) -> dict[str, Any]:
    """Return the metrics: the records of the candidates with their latencies, and the choice that was followed."""
    if shortlist is None:
        return {"candidates": [], "shortlist": None}
    timed = shortlist.timed
    selected = next(row["name"] for row in rows if row["kept"])
    return {
        "candidates": [
            {
                **row,
                "best": fastest_file(timed[row["name"]], config.budget, shortlist.references).row()
                if timed[row["name"]]
                else None,
                "timed": [t.row() for t in timed[row["name"]]],
                "left_out": [asdict(one) for one in shortlist.lost[row["name"]]],
            }
            for row in rows
        ],
        "shortlist": {
            "measured": shortlist.choice,
            "today": shortlist.measured_choice,
            "replayed": shortlist.replayed,
            "no_student_for": targets_without_file(timed[selected], config.targets),
            "latency_p50_ms": config.budget.latency_p50_ms,
            "size_bytes": config.budget.size_bytes,
            **({} if config.budget.is_plain else {"limits": config.budget.describe_limits(config.targets)}),
            **({"beside": [each.row() for each in shortlist.references]} if shortlist.references else {}),
        },
    }


def _row(
    entry: CandidateNetwork,
    selected: CandidateNetwork,
    shortlist: Shortlist,
    config: DistillConfig,
    students: Mapping[str, TrainedStudent],
    baseline: SampleResults,
) -> CandidateRow:
    files = shortlist.timed[entry.title]
    student = students.get(entry.title)
    scores = {"validation_accuracy": student.accuracy, **student.drop_below(baseline)} if student else NO_SCORES
    reason = reason_not_trained(
        entry.title, shortlist.timed, shortlist.choice, config.budget, config.most_trained, shortlist.references
    )
    if student and entry is not selected:
        reason = _why_not_selected(entry, selected, student.accuracy, students[selected.title].accuracy)
    row = {
        "name": entry.title,
        "builder": entry.spec.builder,
        "parameters": entry.parameters,
        "macs": entry.macs,
        "bytes": {f"{file.target}-{file.precision}": file.bytes for file in files},
        "in_time": entry.title in shortlist.choice["in_time"],
        **scores,
        "kept": entry is selected,
        "reason": reason,
    }
    return cast("CandidateRow", row)


def _why_not_selected(
    entry: CandidateNetwork, selected: CandidateNetwork, accuracy: float, best_accuracy: float
) -> str:
    if accuracy < best_accuracy:
        return f"{selected.title} is better, {best_accuracy:.2%}"
    return f"{selected.title} is as good " + (
        "with fewer multiply-adds" if selected.macs < entry.macs else "and named first"
    )
