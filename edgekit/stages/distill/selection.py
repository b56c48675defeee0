"""The selection: the candidates on the shortlist trained by the labels alone; the most accurate becomes the student."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from edgekit.core import artifacts, progress
from edgekit.core.schema.training import CandidateRow, Epoch
from edgekit.core.tasks import Answered
from edgekit.data import Data
from edgekit.device.measure.bench import machine_facts
from edgekit.stages.distill.config import Config
from edgekit.stages.distill.shortlist import Entry, Shortlist, best, refusal, targets_without_file
from edgekit.stages.distill.training import Student, Trainer, best_so_far
from edgekit.training import side_by_side
from edgekit.training.resume import ResumeFolder

EVIDENCE_FILE = "candidates.json"
UNTRAINED = dict.fromkeys(("validation_accuracy", "drop_pp", "lost", "gained", "samples"))


@dataclass(frozen=True)
class Selection:
    """Who is the student, and `alone`, its lone training if that was as long as all the others will be.

    `rows`: one a candidate, free of what a clock said but for `in_time` and what follows from it.
    """

    trainer: Trainer
    alone: Student | None
    rows: list[CandidateRow]
    history: dict[str, list[Epoch]]


def select(shortlist: Shortlist, data: Data, config: Config, place: ResumeFolder, baseline: Answered) -> Selection:
    """Train those of the shortlist; one alone needs no comparison. `baseline`: its answers on validation."""
    epochs = config.candidate_epochs or config.epochs
    trainers = {
        entry.title: Trainer(entry.spec, data, config, place, f"candidate-{number}", f"candidate {entry.title}")
        for number, entry in enumerate(shortlist.entries, 1)
        if entry.title in shortlist.measured["trained"]
    }
    compared = list(trainers) if len(trainers) > 1 else []
    side_by_side.ahead([trainers[title].to_be_made(None, epochs) for title in compared], data, place.folder)
    tried: dict[str, Student] = {}
    for title in progress.each(compared, "candidate", best=lambda: best_so_far(tried.values())):
        tried[title] = trainers[title].train_with_labels(epochs)
    kept = most_accurate(shortlist.entries, {title: each.accuracy for title, each in tried.items()}) or next(
        entry for entry in shortlist.entries if entry.title in trainers
    )
    rows = [_row(entry, kept, shortlist, config, tried, baseline) for entry in shortlist.entries]
    alone = tried.get(kept.title) if epochs == config.epochs else None
    history = {title: each.history for title, each in tried.items()}
    return Selection(trainers[kept.title], alone, rows, history)


def most_accurate(entries: list[Entry], accuracy: Mapping[str, float]) -> Entry | None:
    """On validation; of equals the one with the fewest multiply-adds, then the first; None where none was trained."""
    trained = [entry for entry in entries if entry.title in accuracy]
    return min(trained, key=lambda entry: (-accuracy[entry.title], entry.macs), default=None)


def write_evidence(shortlist: Shortlist, config: Config, out: Path) -> None:
    """Leave what the clock said: every round of every file, and what it decides today."""
    rows = [
        {**file.row(), "model": title, "round_p50s_ms": file.round_p50s_ms}
        for title, files in shortlist.timed.items()
        for file in files
    ]
    protocol = f"{config.rounds} rounds of {config.calls_per_round} calls, batch 1, one thread, weights untrained"
    conditions = {**machine_facts(), "protocol": protocol}
    rows += [{**each.row(), "round_p50s_ms": each.round_p50s_ms} for each in shortlist.beside]
    lost = [{**asdict(one), "model": title} for title, some in shortlist.lost.items() for one in some]
    record = {
        "timed": rows,
        "lost": lost,
        "today": shortlist.today,
        "replayed": shortlist.replayed,
        "conditions": conditions,
    }
    artifacts.write_json(out / artifacts.EVIDENCE / EVIDENCE_FILE, record)


def selection_metrics(shortlist: Shortlist | None, rows: list[CandidateRow], config: Config) -> dict[str, Any]:
    """The metrics: the rows with their times, and what was followed beside what the clock says today."""
    if shortlist is None:
        return {"candidates": [], "shortlist": None}
    timed = shortlist.timed
    kept = next(row["name"] for row in rows if row["kept"])
    return {
        "candidates": [
            {
                **row,
                "best": best(timed[row["name"]], config.budget, shortlist.beside).row() if timed[row["name"]] else None,
                "timed": [t.row() for t in timed[row["name"]]],
                "left_out": [asdict(one) for one in shortlist.lost[row["name"]]],
            }
            for row in rows
        ],
        "shortlist": {
            "measured": shortlist.measured,
            "today": shortlist.today,
            "replayed": shortlist.replayed,
            "no_student_for": targets_without_file(timed[kept], config.targets),
            "latency_p50_ms": config.budget.latency_p50_ms,
            "size_bytes": config.budget.size_bytes,
            **({} if config.budget.is_plain else {"limits": config.budget.words(config.targets)}),
            **({"beside": [each.row() for each in shortlist.beside]} if shortlist.beside else {}),
        },
    }


def _row(
    entry: Entry, kept: Entry, shortlist: Shortlist, config: Config, tried: Mapping[str, Student], baseline: Answered
) -> CandidateRow:
    files = shortlist.timed[entry.title]
    student = tried.get(entry.title)
    figures = {"validation_accuracy": student.accuracy, **student.against(baseline)} if student else UNTRAINED
    reason = refusal(
        entry.title, shortlist.timed, shortlist.measured, config.budget, config.most_trained, shortlist.beside
    )
    if student and entry is not kept:
        reason = _why_another_is_kept(entry, kept, student.accuracy, tried[kept.title].accuracy)
    row = {
        "name": entry.title,
        "builder": entry.spec.builder,
        "parameters": entry.parameters,
        "macs": entry.macs,
        "bytes": {f"{file.target}-{file.precision}": file.bytes for file in files},
        "in_time": entry.title in shortlist.measured["in_time"],
        **figures,
        "kept": entry is kept,
        "reason": reason,
    }
    return cast("CandidateRow", row)


def _why_another_is_kept(entry: Entry, kept: Entry, accuracy: float, best_accuracy: float) -> str:
    if accuracy < best_accuracy:
        return f"{kept.title} is better, {best_accuracy:.2%}"
    return f"{kept.title} is as good " + ("with fewer multiply-adds" if kept.macs < entry.macs else "and named first")
