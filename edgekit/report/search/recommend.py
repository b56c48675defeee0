"""The points to look at first: of every objective the best inside the budget, in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgekit.core.schema.study import TrialRow
from edgekit.report.formatting import capitalised, count
from edgekit.report.search.objectives import Objective
from edgekit.report.search.studies import Study, names, plain, shown, value

WORSE = {"accuracy": "less accurate", "p50_ms": "slower", "bytes": "larger"}
MOST_NAMED = 4


@dataclass(frozen=True)
class Point:
    """A trial, the objectives that it is best in, and by objective those of the front not surely worse in it."""

    trial: TrialRow
    best_in: tuple[Objective, ...]
    close: tuple[tuple[Objective, tuple[int, ...]], ...]

    @property
    def number(self) -> int:
        """Of the trial."""
        return self.trial["number"]

    @property
    def title(self) -> str:
        """`Smallest and fastest`."""
        return _listed([each.best for each in self.best_in]).capitalize()


def points(study: Study) -> list[Point]:
    """Smallest, fastest, most accurate; a trial that is best in two stands once. Empty where none meets the budget."""
    order = {"bytes": 0, "p50_ms": 1, "accuracy": 2}
    wins: dict[int, list[Objective]] = {}
    for objective in sorted(study.objectives, key=lambda each: order[each.name]):
        if best := _best(study, objective):
            wins.setdefault(best["number"], []).append(objective)
    found = []
    for trial in (each for number in wins for each in study.front if each["number"] == number):
        best_in = tuple(wins[trial["number"]])
        close = tuple((each, _close(study, trial, each)) for each in best_in)
        found.append(Point(trial, best_in, tuple(pair for pair in close if pair[1])))
    return found


def _best(study: Study, objective: Objective) -> TrialRow | None:
    """Of the front; of equals the one that the front has first."""
    best: TrialRow | None = None
    for each in study.front:
        if best is None or objective.better(value(each, objective), value(best, objective)):
            best = each
    return best


def _close(study: Study, best: TrialRow, objective: Objective) -> tuple[int, ...]:
    """Others of the front that the intervals do not tell apart from the best, the nearest first."""
    own = best["intervals"][objective.place]
    others = [each for each in study.front if each is not best and each["intervals"][objective.place] and own]
    open_ = [each for each in others if not objective.surely_better(own, each["intervals"][objective.place])]
    open_.sort(key=lambda each: abs(value(each, objective) - value(best, objective)))
    return tuple(each["number"] for each in open_)


def sentences(study: Study, point: Point) -> list[str]:
    """What it is, how sure that is, and the command that writes its config."""
    figures = ", ".join(f"{each.title} {shown(point.trial, each)}" for each in study.objectives)
    lines = [f"{point.title}: trial {point.number}. {capitalised(figures)}."]
    for objective, numbers in point.close:
        lines.append(f"{_named(numbers)} not significantly {WORSE[objective.name]}.")
    return lines


def close_sentences(point: Point) -> list[str]:
    """`Trials 31 and 28 are not significantly slower than trial 29.`, for what intervals do not tell apart."""
    return [
        f"{_named(numbers)} not significantly {WORSE[objective.name]} than trial {point.number}."
        for objective, numbers in point.close
    ]


def describe(study: Study) -> str:
    """All points in words, each with the command that writes its config."""
    found = [[*sentences(study, point), f"  {study.command(point.number)}"] for point in points(study)]
    lines = [line for each in found for line in each]
    return "\n".join(lines or ["No trial is inside the budget, so there is none to take."])


def options(study: Study, trial: TrialRow) -> str:
    """`width=24, blocks=2`: those of a trial that the space leaves a choice of, in its order, by their short names."""
    given = trial["parameters"]
    return ", ".join(f"{name}={plain(given[key])}" for key, name in names(study).items() if key in given)


def _named(numbers: Sequence[int]) -> str:
    shown_, rest = [str(each) for each in numbers[:MOST_NAMED]], len(numbers) - MOST_NAMED
    names = _listed(shown_ if rest <= 0 else [*shown_, f"{count(rest)} more"])
    return f"Trial {names} is" if len(numbers) == 1 else f"Trials {names} are"


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
