"""Evidence about the shipped variants, gathered on the validation split: accuracy by class, lost samples, and pictures.

Tables have a bounded size, however many classes there are; `evidence/answers.npz` has all answers of all variants.

For tasks whose answers are drawn on the image, such as boxes, a few images are stored, half with good answers and half
with bad ones. The module of such a task has a function `closeness(answers, y)`, by which the images are chosen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.core import artifacts, tasks
from edgekit.core.schema.by_class import ByClass, Confusion, GroupAnswers, GroupRow, LostSample, LostSamples
from edgekit.core.tasks import Group, Task
from edgekit.data import Data

ANSWERS_FILE, LOST_FILE = f"{artifacts.EVIDENCE}/answers.npz", f"{artifacts.EVIDENCE}/lost.npz"
MAX_GROUPS = 30
"""Largest number of groups, such as classes, in tables and in result.json. If there are more, the groups in which the
shipped variant loses most are shown."""
MAX_CLASSES = 12
"""Largest number of classes with a row of their own in a confusion matrix. All others share one row and one column."""
MAX_LOST = 12
"""Largest number of lost samples that are shown."""

Answers = Mapping[str, np.ndarray]
"""The answers to the validation samples by name of the variant, the baseline first."""


@dataclass(frozen=True)
class Breakdown:
    """Accuracy by class, the confusion matrix, and lost samples.

    `confusion` is None if answers are not classes. `lost` has samples that the baseline answers correctly and the first
    of the shipped variants does not; `indices` are their indices in the validation split.
    """

    by_class: ByClass
    confusion: Confusion | None
    lost: LostSamples
    indices: list[int]


def shipped_variants(metrics: Mapping[str, Any]) -> list[str]:
    """Return the names of the variants that ship, the overall winner first; if none ships, the nearest miss."""
    if metrics["winner"]:
        return list(dict.fromkeys([metrics["winner"], *metrics["winners"].values()]))
    nearest = metrics["nearest_miss"]
    return [nearest["name"]] if nearest else []


def break_down(task: Task, y: np.ndarray, names: Sequence[str], answers: Answers, shipped: Sequence[str]) -> Breakdown:
    """Break down by class the answers of the baseline and of the `shipped` variants to samples with the labels `y`.

    `names` are the names of the classes.
    """
    task_module, baseline = tasks.load_task(task), next(iter(answers))
    groups = {name: task_module.groups(answers[name], y, names) for name in (baseline, *shipped)}
    correct = {name: task_module.is_correct(answers[name], y) for name in groups}
    order = (
        _worst_first(groups[baseline], groups[shipped[0]], task_module.SCORE_RISES)
        if shipped
        else list(range(len(groups[baseline])))
    )
    shown_indices = sorted(order[:MAX_GROUPS]) if len(order) <= MAX_GROUPS else order[:MAX_GROUPS]
    by_class: ByClass = {
        "split": "validation",
        "group": task_module.GROUP,
        "score": task_module.SCORE,
        "samples": len(y),
        "variants": list(groups),
        "groups_in_all": len(order),
        "groups": [_row(index, groups) for index in shown_indices],
        "lost": {name: int((correct[baseline] & ~correct[name]).sum()) for name in shipped},
        "gained": {name: int((correct[name] & ~correct[baseline]).sum()) for name in shipped},
    }
    indices = (
        _spread_over_strata(np.flatnonzero(correct[baseline] & ~correct[shipped[0]]), task_module.strata(y))
        if shipped
        else []
    )
    lost: LostSamples = {
        "variant": shipped[0] if shipped else None,
        "right_means": task_module.CORRECT_WHEN,
        "in_all": by_class["lost"][shipped[0]] if shipped else 0,
        "samples": _lost_rows(task_module, y, names, answers[baseline], answers[shipped[0]], indices)
        if shipped
        else [],
    }
    confusion = _confusion({name: answers[name] for name in groups}, y, names) if task == "classification" else None
    return Breakdown(by_class, confusion, lost, indices)


def write_evidence(out: Path, data: Data, answers: Answers, indices: Sequence[int]) -> None:
    """Write all answers, and the raw samples at `indices`; texts are written as text, not as token ids."""
    np.savez_compressed(out / ANSWERS_FILE, allow_pickle=False, **{"labels": data.validation.y, **answers})
    x = data.validation.x[list(indices)]
    if data.kind == "text":
        from edgekit.data.texts import text_of_sample

        x = np.array([text_of_sample(data, sample) for sample in x], str)
    np.savez_compressed(out / LOST_FILE, allow_pickle=False, x=x, places=np.array(indices, int))


def _row(index: int, groups_by_variant: Mapping[str, list[Group]]) -> GroupRow:
    first = next(iter(groups_by_variant.values()))[index]
    return {
        "name": first.name,
        "samples": first.samples,
        "answers": [_answers(name, groups[index]) for name, groups in groups_by_variant.items()],
    }


def _answers(variant: str, group: Group) -> GroupAnswers:
    return {"variant": variant, "score": group.score, "found": group.found, "false": group.false}


def _worst_first(baseline_groups: list[Group], variant_groups: list[Group], higher_is_better: bool) -> list[int]:
    """Return the indices of the groups, sorted by how much score they lost, largest loss first.

    Ties are sorted by score, worst first. Groups without a score come last.
    """
    sign = 1.0 if higher_is_better else -1.0

    def rank(index: int) -> tuple[bool, float, float, int]:
        old, new = baseline_groups[index].score, variant_groups[index].score
        if old is None or new is None:
            return True, 0.0, 0.0, index
        return False, round(sign * (new - old), 9), sign * new, index

    return sorted(range(len(baseline_groups)), key=rank)


def _confusion(answers: Answers, y: np.ndarray, names: Sequence[str]) -> Confusion:
    """Count, for each network, the samples of each true class (rows) by the predicted class (columns).

    If there are many classes, only the classes that the shipped network (the second) confuses most often are listed.
    All other classes share the last row and the last column. The cell in the last row and the last column counts
    correct answers only: samples of an unlisted class that were mistaken for another unlisted class are counted in
    `among_the_rest`.
    """
    variant_answers = list(answers.values())[:2][-1]
    is_wrong = variant_answers != y
    mistakes = sum(np.bincount(values[is_wrong], minlength=len(names)) for values in (y, variant_answers))
    class_indices = np.sort(np.argsort(-np.asarray(mistakes), kind="stable")[:MAX_CLASSES])
    row_of_class = np.full(len(names), len(class_indices))
    row_of_class[class_indices] = np.arange(len(class_indices))
    side = len(class_indices) + (len(names) > len(class_indices))
    counts, mistakes_within_rest = {}, {}
    for name, predicted in answers.items():
        cells = np.zeros((side, side), int)
        np.add.at(cells, (row_of_class[y], row_of_class[predicted]), 1)
        mistakes_within_rest[name] = int(
            (
                (row_of_class[y] == len(class_indices))
                & (row_of_class[predicted] == len(class_indices))
                & (predicted != y)
            ).sum()
        )
        cells[-1, -1] -= mistakes_within_rest[name]
        counts[name] = cells.tolist()
    return {
        "classes": [names[index] for index in class_indices],
        "rest": len(names) - len(class_indices),
        "counts": counts,
        "among_the_rest": mistakes_within_rest,
    }


def _spread_over_strata(indices: np.ndarray, strata: np.ndarray) -> list[int]:
    """Return at most `MAX_LOST` of the indices, sorted by stratum (in a classification, by class).

    To choose them, the first index of every stratum is taken, then the second of every stratum, and so on.
    """
    indices_by_stratum = [indices[strata[indices] == stratum] for stratum in np.unique(strata[indices])]
    candidates = (
        int(stratum_indices[round_number])
        for round_number in range(MAX_LOST)
        for stratum_indices in indices_by_stratum
        if round_number < len(stratum_indices)
    )
    chosen = [index for index, _ in zip(candidates, range(MAX_LOST), strict=False)]
    return sorted(chosen, key=lambda index: (int(strata[index]), index))


def _lost_rows(
    task_module: Any,
    y: np.ndarray,
    names: Sequence[str],
    baseline_answers: np.ndarray,
    variant_answers: np.ndarray,
    indices: Sequence[int],
) -> list[LostSample]:
    """Return the samples at `indices` with their labels and the answers of both networks.

    The task's `describe_answers` is called with all answers, because some tasks derive a threshold from all of them.
    """
    labels = task_module.describe_labels(y[list(indices)], names)
    answers_in_words = [
        [task_module.describe_answers(answers, y, names)[index] for index in indices]
        for answers in (baseline_answers, variant_answers)
    ]
    return [
        {"place": index, "label": label, "baseline": old, "variant": new}
        for index, label, old, new in zip(indices, labels, *answers_in_words, strict=True)
    ]


EXAMPLES_FILE = f"{artifacts.EVIDENCE}/examples.npz"
EXAMPLE_COUNT = 4
"""Number of example images, half of them with the best answers, half with the worst."""


def write_examples(out: Path, data: Data, answers: Mapping[str, np.ndarray], shipped: Sequence[str]) -> None:
    """Write example pictures with their labels and the answers of the baseline and the first shipped variant.

    Nothing is written if the samples are not pictures, if the task has no `closeness`, or if an answer is one number.
    """
    task_module = tasks.load_task(data.task)
    names = [next(iter(answers)), *shipped[:1]]
    if data.kind != "image" or not hasattr(task_module, "closeness") or answers[names[-1]].ndim == 1:
        return
    drawn = getattr(task_module, "drawn_answers", lambda given, y: given)
    indices = choose_examples(task_module.closeness(answers[names[-1]], data.validation.y))
    np.savez_compressed(
        out / EXAMPLES_FILE,
        allow_pickle=False,
        task=np.array(data.task),
        classes=np.array(data.classes),
        places=np.array(indices),
        x=data.validation.x[indices],
        labels=data.validation.y[indices],
        variants=np.array(names),
        answers=_stacked([drawn(answers[name], data.validation.y)[indices] for name in names]),
        **({"skeleton": np.array(data.keypoints.skeleton, np.int64).reshape(-1, 2)} if data.keypoints else {}),
    )


def _stacked(answers: Sequence[np.ndarray]) -> np.ndarray:
    """Stack the answers of variants. Those that are shorter, which instance masks may be, end with more -1."""
    longest = max(each.shape[1] for each in answers)
    missing = [[(0, 0), (0, longest - each.shape[1]), *[(0, 0)] * (each.ndim - 2)] for each in answers]
    return np.stack([np.pad(each, widths, constant_values=-1) for each, widths in zip(answers, missing, strict=True)])


def choose_examples(closeness: np.ndarray, count: int = EXAMPLE_COUNT) -> list[int]:
    """Return the indices of the best answers, best first, followed by those of the worst. No index appears twice."""
    order = (-closeness).argsort(kind="stable").tolist()
    best = order[: -(-count // 2)]
    return best + [index for index in order[-(count // 2) :] if index not in best]
