"""Recommend the trials to look at first: for each objective, the best trial within the budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgekit.core.schema.study import TrialRow
from edgekit.report.formatting import capitalised, count
from edgekit.report.search.objectives import StudyObjective
from edgekit.report.search.studies import Study, objective_value, option_names, parameter_text, value_text

WORSE = {"accuracy": "less accurate", "p50_ms": "slower", "bytes": "larger"}
MAX_LISTED = 4


@dataclass(frozen=True)
class Recommendation:
    """A trial and the objectives in which it is best. `close` has other trials that are not significantly worse."""

    trial: TrialRow
    best_in: tuple[StudyObjective, ...]
    close: tuple[tuple[StudyObjective, tuple[int, ...]], ...]

    @property
    def number(self) -> int:
        """The number of the trial."""
        return self.trial["number"]

    @property
    def title(self) -> str:
        """For example `Smallest and fastest`."""
        return _join([each.best for each in self.best_in]).capitalize()


def points(study: Study) -> list[Recommendation]:
    """Return the smallest, fastest and most accurate trials, each listed once.

    The result is empty if no trial meets the budget.
    """
    order = {"bytes": 0, "p50_ms": 1, "accuracy": 2}
    wins: dict[int, list[StudyObjective]] = {}
    for objective in sorted(study.objectives, key=lambda each: order[each.name]):
        if best := _best(study, objective):
            wins.setdefault(best["number"], []).append(objective)
    recommendations = []
    for trial in (each for number in wins for each in study.front if each["number"] == number):
        best_in = tuple(wins[trial["number"]])
        close = tuple((each, _close_trials(study, trial, each)) for each in best_in)
        recommendations.append(Recommendation(trial, best_in, tuple(pair for pair in close if pair[1])))
    return recommendations


def _best(study: Study, objective: StudyObjective) -> TrialRow | None:
    """Return the best trial of the front or, if several are equally good, the first of them."""
    best: TrialRow | None = None
    for each in study.front:
        if best is None or objective.better(objective_value(each, objective), objective_value(best, objective)):
            best = each
    return best


def _close_trials(study: Study, best: TrialRow, objective: StudyObjective) -> tuple[int, ...]:
    """Return the numbers of trials on the front that are not significantly worse than the best, the nearest first."""
    best_interval = best["intervals"][objective.place]
    others = [each for each in study.front if each is not best and each["intervals"][objective.place] and best_interval]
    undecided = [
        each for each in others if not objective.surely_better(best_interval, each["intervals"][objective.place])
    ]
    undecided.sort(key=lambda each: abs(objective_value(each, objective) - objective_value(best, objective)))
    return tuple(each["number"] for each in undecided)


def sentences(study: Study, point: Recommendation) -> list[str]:
    """Return sentences with the trial's figures and the other trials that are not significantly worse."""
    figures = ", ".join(f"{each.title} {value_text(point.trial, each)}" for each in study.objectives)
    lines = [f"{point.title}: trial {point.number}. {capitalised(figures)}."]
    for objective, numbers in point.close:
        lines.append(f"{_trials_are(numbers)} not significantly {WORSE[objective.name]}.")
    return lines


def close_sentences(point: Recommendation) -> list[str]:
    """Return sentences such as `Trials 31 and 28 are not significantly slower than trial 29.`"""
    return [
        f"{_trials_are(numbers)} not significantly {WORSE[objective.name]} than trial {point.number}."
        for objective, numbers in point.close
    ]


def describe(study: Study) -> str:
    """Return all recommended trials in words, each with the command that writes its config."""
    texts = [[*sentences(study, point), f"  {study.command(point.number)}"] for point in points(study)]
    lines = [line for each in texts for line in each]
    return "\n".join(lines or ["No trial meets the budget, so none is recommended."])


def options(study: Study, trial: TrialRow) -> str:
    """Return the options of a trial that differ between trials, with short names, such as `width=24, blocks=2`."""
    parameters = trial["parameters"]
    return ", ".join(
        f"{name}={parameter_text(parameters[key])}" for key, name in option_names(study).items() if key in parameters
    )


def _trials_are(numbers: Sequence[int]) -> str:
    shown_, rest = [str(each) for each in numbers[:MAX_LISTED]], len(numbers) - MAX_LISTED
    names = _join(shown_ if rest <= 0 else [*shown_, f"{count(rest)} more"])
    return f"Trial {names} is" if len(numbers) == 1 else f"Trials {names} are"


def _join(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
