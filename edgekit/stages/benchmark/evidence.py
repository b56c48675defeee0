"""Evidence on the shipped variants, from validation: accuracy by class, lost samples, and example pictures.

Accuracy of the shipped variants on validation, class by class and sample by sample.

What is shown is bounded, however many classes there are; `evidence/answers.npz` has every answer of every variant.

Validation pictures whose answers lie in the picture, for drawing: some answered well, some badly, as evidence.

A task that has such answers offers `closeness(answers, y)`, by which they are chosen.
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

ANSWERS, LOST = f"{artifacts.EVIDENCE}/answers.npz", f"{artifacts.EVIDENCE}/lost.npz"
MOST_GROUPS = 30
"""In tables and in result.json; of more, those where what ships is worst beside the baseline."""
MOST_CLASSES = 12
"""Of a confusion matrix; the others are one row and one column."""
MOST_LOST = 12
"""Samples that are shown."""

Answers = Mapping[str, np.ndarray]
"""What each network says of the validation samples, by the variant's name, the baseline first."""


@dataclass(frozen=True)
class Breakdown:
    """`by_class` stands in result.json; `confusion` is None where answers are no classes; `lost` are the samples
    that the baseline answers rightly and the first of the shown variants wrongly, `places` where they stand."""

    by_class: ByClass
    confusion: Confusion | None
    lost: LostSamples
    places: list[int]


def shown(metrics: Mapping[str, Any]) -> list[str]:
    """The variants that ship, the fastest of all first; where none does, the one that comes nearest."""
    if metrics["winner"]:
        return list(dict.fromkeys([metrics["winner"], *metrics["winners"].values()]))
    nearest = metrics["nearest_miss"]
    return [nearest["name"]] if nearest else []


def break_down(task: Task, y: np.ndarray, names: Sequence[str], answers: Answers, ship: Sequence[str]) -> Breakdown:
    """The answers of the baseline and of the variants in `ship` to the samples with the labels `y`."""
    kind, baseline = tasks.load_task(task), next(iter(answers))
    groups = {name: kind.groups(answers[name], y, names) for name in (baseline, *ship)}
    right = {name: kind.is_correct(answers[name], y) for name in groups}
    order = (
        _worst_first(groups[baseline], groups[ship[0]], kind.SCORE_RISES)
        if ship
        else list(range(len(groups[baseline])))
    )
    kept = sorted(order[:MOST_GROUPS]) if len(order) <= MOST_GROUPS else order[:MOST_GROUPS]
    by_class: ByClass = {
        "split": "validation",
        "group": kind.GROUP,
        "score": kind.SCORE,
        "samples": len(y),
        "variants": list(groups),
        "groups_in_all": len(order),
        "groups": [_row(place, groups) for place in kept],
        "lost": {name: int((right[baseline] & ~right[name]).sum()) for name in ship},
        "gained": {name: int((right[name] & ~right[baseline]).sum()) for name in ship},
    }
    places = _spread_over_strata(np.flatnonzero(right[baseline] & ~right[ship[0]]), kind.strata(y)) if ship else []
    lost: LostSamples = {
        "variant": ship[0] if ship else None,
        "right_means": kind.CORRECT_WHEN,
        "in_all": by_class["lost"][ship[0]] if ship else 0,
        "samples": _lost_rows(kind, y, names, answers[baseline], answers[ship[0]], places) if ship else [],
    }
    confused = _confusion({name: answers[name] for name in groups}, y, names) if task == "classification" else None
    return Breakdown(by_class, confused, lost, places)


def write_evidence(out: Path, data: Data, answers: Answers, places: Sequence[int]) -> None:
    """Every answer, and the raw samples that are shown, as evidence; texts in words."""
    np.savez_compressed(out / ANSWERS, allow_pickle=False, **{"labels": data.validation.y, **answers})
    x = data.validation.x[list(places)]
    if data.kind == "text":
        from edgekit.data.texts import text_of_sample

        x = np.array([text_of_sample(data, sample) for sample in x], str)
    np.savez_compressed(out / LOST, allow_pickle=False, x=x, places=np.array(places, int))


def _row(place: int, groups_by_variant: Mapping[str, list[Group]]) -> GroupRow:
    first = next(iter(groups_by_variant.values()))[place]
    return {
        "name": first.name,
        "samples": first.samples,
        "answers": [_answers(name, groups[place]) for name, groups in groups_by_variant.items()],
    }


def _answers(variant: str, group: Group) -> GroupAnswers:
    return {"variant": variant, "score": group.score, "found": group.found, "false": group.false}


def _worst_first(before: list[Group], after: list[Group], rises: bool) -> list[int]:
    """Places of the groups: those that lost most first, of equals the worst; those without a score at the end."""
    sign = 1.0 if rises else -1.0

    def rank(place: int) -> tuple[bool, float, float, int]:
        old, new = before[place].score, after[place].score
        if old is None or new is None:
            return True, 0.0, 0.0, place
        return False, round(sign * (new - old), 9), sign * new, place

    return sorted(range(len(before)), key=rank)


def _confusion(answers: Answers, y: np.ndarray, names: Sequence[str]) -> Confusion:
    """How many samples of each class (rows) each network answers as which (columns).

    Of many classes those that the second network, which ships, mistakes most often; all `rest` of them are one more.
    There the diagonal has what is right, and `among_the_rest` what is mistaken for another of the rest.
    """
    ships = list(answers.values())[:2][-1]
    wrong = ships != y
    mistakes = sum(np.bincount(of[wrong], minlength=len(names)) for of in (y, ships))
    kept = np.sort(np.argsort(-np.asarray(mistakes), kind="stable")[:MOST_CLASSES])
    place = np.full(len(names), len(kept))
    place[kept] = np.arange(len(kept))
    side = len(kept) + (len(names) > len(kept))
    counts, among = {}, {}
    for name, said in answers.items():
        cells = np.zeros((side, side), int)
        np.add.at(cells, (place[y], place[said]), 1)
        among[name] = int(((place[y] == len(kept)) & (place[said] == len(kept)) & (said != y)).sum())
        cells[-1, -1] -= among[name]
        counts[name] = cells.tolist()
    return {
        "classes": [names[index] for index in kept],
        "rest": len(names) - len(kept),
        "counts": counts,
        "among_the_rest": among,
    }


def _spread_over_strata(places: np.ndarray, strata: np.ndarray) -> list[int]:
    """At most `MOST_LOST` of the places, one of each stratum and then a second, in the order of the strata."""
    of = [places[strata[places] == stratum] for stratum in np.unique(strata[places])]
    turns = (int(own[turn]) for turn in range(MOST_LOST) for own in of if turn < len(own))
    chosen = [place for place, _ in zip(turns, range(MOST_LOST), strict=False)]
    return sorted(chosen, key=lambda place: (int(strata[place]), place))


def _lost_rows(
    kind: Any, y: np.ndarray, names: Sequence[str], before: np.ndarray, after: np.ndarray, places: Sequence[int]
) -> list[LostSample]:
    """The places with their labels and what both networks said; all answers go in, for thresholds rest on all."""
    meant = kind.describe_labels(y[list(places)], names)
    said = [[kind.describe_answers(answers, y, names)[place] for place in places] for answers in (before, after)]
    return [
        {"place": place, "label": label, "baseline": old, "variant": new}
        for place, label, old, new in zip(places, meant, *said, strict=True)
    ]


EXAMPLES = f"{artifacts.EVIDENCE}/examples.npz"
EXAMPLE_COUNT = 4
"""Pictures: half of them are answered best, half worst."""


def write_examples(out: Path, data: Data, answers: Mapping[str, np.ndarray], ship: Sequence[str]) -> None:
    """The pictures with their labels, and what the baseline and the first variant that ships say of them."""
    kind = tasks.load_task(data.task)
    if data.kind != "image" or not hasattr(kind, "closeness"):
        return
    names = [next(iter(answers)), *ship[:1]]
    places = chosen_examples(kind.closeness(answers[names[-1]], data.validation.y))
    np.savez_compressed(
        out / EXAMPLES,
        allow_pickle=False,
        task=np.array(data.task),
        classes=np.array(data.classes),
        places=np.array(places),
        x=data.validation.x[places],
        labels=data.validation.y[places],
        variants=np.array(names),
        answers=np.stack([answers[name][places] for name in names]),
    )


def chosen_examples(closeness: np.ndarray, count: int = EXAMPLE_COUNT) -> list[int]:
    """Places of the best, best first, then of the worst; each once."""
    order = (-closeness).argsort(kind="stable").tolist()
    best = order[: -(-count // 2)]
    return best + [place for place in order[-(count // 2) :] if place not in best]
