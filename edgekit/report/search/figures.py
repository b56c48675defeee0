"""The rows that the figures of a study are drawn from, and the figures."""

from __future__ import annotations

import json
import math
from typing import Any

from matplotlib.figure import Figure

from edgekit.core.config import Budget
from edgekit.core.schema.study import TrialRow
from edgekit.report import plots
from edgekit.report.plots.search_options import MOST_AXES
from edgekit.report.search import recommend, studies
from edgekit.report.search.cost import spent
from edgekit.report.search.importances import Importances
from edgekit.report.search.objectives import Objective
from edgekit.report.search.studies import Study, plain, value

WIDE = 3.0
"""Times the smallest value from which on an axis is a logarithm."""


def front(study: Study) -> Figure | None:
    """Each pair of objectives; the recommended points are numbered."""
    named = {point.number: point.title.lower() for point in recommend.points(study)}
    on_front = {each["number"] for each in study.front}
    points = []
    for trial in study.complete:
        kind = "front" if trial["number"] in on_front else "inside" if trial["feasible"] else "over"
        row: dict[str, Any] = {"number": trial["number"], "kind": kind, "values": [], "lows": [], "highs": []}
        for each in study.objectives:
            own = value(trial, each)
            low, high = trial["intervals"][each.place] or (own, own)
            for key, end in (("values", own), ("lows", low), ("highs", high)):
                row[key].append(each.scaled(end))
        points.append(row)
    return plots.search_front([_axis(study, each) for each in study.objectives], points, named)


def _axis(study: Study, objective: Objective) -> dict[str, Any]:
    limit = limit_of(study, objective)
    return {
        "heading": objective.heading,
        "log": objective.name != "accuracy" and _is_wide([value(each, objective) for each in study.complete]),
        "maximize": objective.maximize,
        "limit": None if limit is None else objective.scaled(limit),
        "limit_words": "" if limit is None else objective.shown(limit).replace("\u00a0", " "),
    }


def _is_wide(found: list[float]) -> bool:
    """Whether a log scale says more: on one, numbers close together have hardly a tick."""
    return bool(found) and min(found) > 0 and max(found) >= WIDE * min(found)


def limit_of(study: Study, objective: Objective) -> float | None:
    """The budget's limit of an objective; of accuracy only where the study knows the baseline's.

    A p50 beside a reference's is no line in milliseconds: None.
    """
    budget = study.row["budget"]
    if objective.name != "accuracy":
        limits = Budget.model_validate(budget).limits(objective.target or "")
        return limits.latency_p50_ms if objective.name == "p50_ms" else limits.most_bytes()
    baseline, drop = study.row.get("baseline_accuracy"), budget.get("accuracy_drop_pp")
    return None if baseline is None or drop is None else baseline - drop / 100


def importances(study: Study, found: Importances) -> Figure | None:
    """Options in the order of their largest share."""
    largest: dict[str, float] = {}
    for row in found.rows:
        largest[row.key] = max(row.share, largest.get(row.key, 0.0))
    order = sorted(largest, key=lambda key: -largest[key])
    short = studies.names(study)
    rows = {
        each.title: {short[row.key]: {"share": row.share, "low": row.low, "high": row.high} for row in found.of(each)}
        for each in study.objectives
    }
    return plots.search_importances([each.title for each in study.objectives], [short[key] for key in order], rows)


def parallel(study: Study, found: Importances) -> Figure | None:
    """The objectives on the right; where options are many, those with the largest importance."""
    short = studies.names(study)
    keys = [key for key in short if any(key in each["parameters"] for each in study.trials)]
    largest = {key: max((row.share for row in found.rows if row.key == key), default=0.0) for key in keys}
    kept = sorted(keys, key=lambda key: -largest[key])[: max(1, MOST_AXES - len(study.objectives))]
    keys = [key for key in keys if key in kept]
    scales = [_Scale.of_option(study, key) for key in keys]
    ends = [_Scale.of_objective(study, each) for each in study.objectives] if study.complete else []
    axes = [
        {"heading": short[key], "ticks": scale.ticks, "option": True} for key, scale in zip(keys, scales, strict=True)
    ]
    for each, scale in zip(study.objectives, ends, strict=False):
        heading = f"{each.heading} {'↑' if each.maximize else '↓'}"
        axes.append({"heading": heading, "ticks": scale.ticks, "option": False})
    on_front = {each["number"] for each in study.front}
    lines = []
    for trial in study.trials:
        places = [scale.place(trial["parameters"].get(key)) for key, scale in zip(keys, scales, strict=True)]
        complete = trial["state"] == "complete"
        reached = [_scaled(trial, each) if complete else None for each in study.objectives]
        places += [scale.place(each) for each, scale in zip(reached, ends, strict=False)]
        lines.append({"kind": _kind(trial, on_front), "places": places})
    return plots.search_parallel(axes, lines)


def growth(study: Study) -> Figure | None:
    """After each batch."""
    rows: list[dict[str, Any]] = []
    for each in study.row["batches"]:
        until = sum(trial["batch"] <= each["number"] for trial in study.trials)
        rows.append({**each, "trials": until})
    return plots.search_growth(rows)


def cost(study: Study) -> Figure | None:
    """Rung by rung."""
    rows = [{"title": row.title, "came": row.came, "ended": row.ended, "seconds": row.seconds} for row in spent(study)]
    return plots.search_cost(rows)


def _kind(trial: TrialRow, on_front: set[int]) -> str:
    if trial["state"] != "complete":
        return "rest"
    return "front" if trial["number"] in on_front else "inside" if trial["feasible"] else "over"


def _scaled(trial: TrialRow, objective: Objective) -> float:
    return objective.scaled(value(trial, objective))


class _Scale:
    """Of a vertical axis: where a value stands between 0 and 1, and its ticks."""

    def __init__(self, choices: list[Any], low: float, high: float, log: bool) -> None:
        self._choices = [json.dumps(each, sort_keys=True) for each in choices]
        self._low, self._high, self._log = low, high, log and low > 0
        if choices:
            self.ticks = [(self.place(each), plain(each)) for each in choices]
        else:
            ends = dict.fromkeys((low, high))
            self.ticks = [(self.place(each), f"{each:.3g}") for each in ends]

    @classmethod
    def of_option(cls, study: Study, key: str) -> _Scale:
        """All entries of the key in the space."""
        rows = [each for each in study.row["space"] if each["key"] == key]
        if any("choices" in row for row in rows):
            listed = {json.dumps(each): each for row in rows for each in row.get("choices", ())}
            return cls(list(listed.values()), 0, 1, log=False)
        low, high = min(row["low"] for row in rows), max(row["high"] for row in rows)
        return cls([], low, high, all(row.get("log", False) for row in rows))

    @classmethod
    def of_objective(cls, study: Study, objective: Objective) -> _Scale:
        """From the smallest to the largest of all complete trials."""
        found = [_scaled(each, objective) for each in study.complete]
        return cls([], min(found), max(found), log=objective.name != "accuracy")

    def place(self, given: Any) -> float | None:
        """None of what a trial does not have."""
        if given is None and json.dumps(None) not in self._choices:
            return None
        if self._choices:
            text = json.dumps(given, sort_keys=True)
            if text not in self._choices:
                return None
            return self._choices.index(text) / max(1, len(self._choices) - 1)
        ends = (self._low, self._high, max(given, self._low))
        low, high, own = (math.log(each) if self._log else each for each in ends)
        return min(1.0, (own - low) / (high - low)) if high > low else 0.5
