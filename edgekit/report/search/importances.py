"""What each option did: the share of an objective's variance that it explains alone, by functional ANOVA.

Hutter, Hoos and Leyton-Brown, *An Efficient Approach for Assessing Hyperparameter Importance*, ICML 2014, as Optuna
implements it over scikit-learn's forests. An option that exists only under others is explained by the trials that have
it, beside the options that all of those have.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from edgekit.core.schema.study import DimensionRow, TrialRow
from edgekit.report.search.objectives import Objective
from edgekit.report.search.studies import Study, names, value

LEAST = 20
"""Complete trials that have the option; of fewer a forest tells chance from effect too badly."""
TREES, SEED = 48, 0
PARTS, TREES_OF_PART = 4, 16
"""The spread is that of as many answers, each without another part of the trials."""
LEVELS = 10
"""Numbers are put into as many levels, even ones of the logarithm where the space has it: time grows with them."""


@dataclass(frozen=True)
class Importance:
    """`share` of the variance that it explains alone; `low` and `high` of it when a quarter of trials is left out."""

    objective: Objective
    key: str
    share: float
    low: float
    high: float
    trials: int


@dataclass(frozen=True)
class Importances:
    """Rows by objective, in the order of the space; `left_out` says in words what cannot be explained, and why."""

    rows: tuple[Importance, ...]
    left_out: tuple[str, ...]

    def of(self, objective: Objective) -> list[Importance]:
        """Its rows."""
        return [row for row in self.rows if row.objective == objective]


def of(study: Study) -> Importances:
    """Of all objectives. Empty where Optuna is not installed, and `left_out` says so."""
    if importlib.util.find_spec("optuna") is None:
        return Importances((), ("Importances need Optuna: pip install optuna.",))
    trials = [each for each in study.complete if each["same_as"] is None]
    keys = list(names(study))
    having = {key: [each for each in trials if key in each["parameters"]] for key in keys}
    few = {key: len(found) for key, found in having.items() if len(found) < LEAST}
    left_out = [few_words(len(trials), few)] if few else []
    groups: dict[tuple[int, ...], list[str]] = {}
    for key in (key for key in keys if key not in few):
        groups.setdefault(tuple(each["number"] for each in having[key]), []).append(key)
    rows: list[Importance] = []
    for objective in study.objectives if groups else ():
        if len({value(each, objective) for each in trials}) == 1:
            left_out.append(f"Nothing to explain: every trial has the same {objective.title}.")
            continue
        found = [_group(study, objective, mine, having[mine[0]]) for mine in groups.values()]
        rows += sorted((row for group in found for row in group), key=lambda row: keys.index(row.key))
    return Importances(tuple(rows), tuple(left_out))


def few_words(complete: int, few: Mapping[str, int]) -> str:
    """Of which options too few trials are complete, and how many are needed."""
    if complete < LEAST:
        return f"Too few trials to tell what each option did: {complete} complete, and at least {LEAST} are needed."
    which = ", ".join(f"{key} ({count} complete)" for key, count in few.items())
    return f"Too few trials to tell what these did: {which}; at least {LEAST} are needed."


def _group(study: Study, objective: Objective, keys: Sequence[str], trials: Sequence[TrialRow]) -> list[Importance]:
    """Options that the same trials have, beside all others that those have; what is the same in all is left out."""
    entries = study.row["space"]
    space = {key: _Levels([row for row in entries if row["key"] == key]) for key in names(study)}
    beside = {key: levels for key, levels in space.items() if all(key in trial["parameters"] for trial in trials)}
    whole = _shares(objective, beside, trials, TREES)
    parts = [[trial for place, trial in enumerate(trials) if place % PARTS != part] for part in range(PARTS)]
    without = [_shares(objective, beside, part, TREES_OF_PART) for part in parts] if whole else []
    found = []
    for key in (key for key in keys if key in whole):
        ends = [whole[key], *(part.get(key, whole[key]) for part in without)]
        found.append(Importance(objective, key, whole[key], min(ends), max(ends), len(trials)))
    return found


def _shares(
    objective: Objective, beside: Mapping[str, _Levels], trials: Sequence[TrialRow], trees: int
) -> dict[str, float]:
    """By option; of a single value of the objective nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # tqdm's, in a kernel without widgets; what Optuna calls experimental
        import optuna
        from optuna.importance import FanovaImportanceEvaluator

    logging.getLogger("optuna").setLevel(logging.ERROR)
    answers = [value(each, objective) for each in trials]
    if len(set(answers)) < 2:
        return {}
    distributions = {key: levels.distribution() for key, levels in beside.items()}
    model = optuna.create_study()
    for each, answer in zip(trials, answers, strict=True):
        params = {key: levels.level(each["parameters"][key]) for key, levels in beside.items()}
        model.add_trial(optuna.create_trial(params=params, distributions=distributions, value=answer))
    evaluator = FanovaImportanceEvaluator(n_trees=trees, seed=SEED)
    return {key: float(share) for key, share in evaluator.evaluate(model, params=list(beside)).items()}


class _Levels:
    """Values of an option, as a forest gets them; `rows` are all entries of its key."""

    def __init__(self, rows: Sequence[DimensionRow]) -> None:
        listed = [each for row in rows for each in row.get("choices", ())]
        self._choices = list(dict.fromkeys(json.dumps(each, sort_keys=True) for each in listed))
        self._log = all(row.get("log") for row in rows)
        if not self._choices:
            self._low, self._high = min(map(self._of, _ends(rows, "low"))), max(map(self._of, _ends(rows, "high")))

    def distribution(self) -> Any:
        """Optuna's, of the levels."""
        from optuna.distributions import CategoricalDistribution, IntDistribution

        return CategoricalDistribution(range(len(self._choices))) if self._choices else IntDistribution(0, LEVELS - 1)

    def level(self, given: Any) -> int:
        """From 0; what lies outside of the range is at its end, and another choice is the first."""
        if self._choices:
            text = json.dumps(given, sort_keys=True)
            return self._choices.index(text) if text in self._choices else 0
        share = (self._of(given) - self._low) / ((self._high - self._low) or 1)
        return min(LEVELS - 1, max(0, int(share * LEVELS)))

    def _of(self, number: float) -> float:
        return math.log(number) if self._log else float(number)


def _ends(rows: Sequence[DimensionRow], which: Literal["low", "high"]) -> list[float]:
    return [row[which] for row in rows if which in row]
