"""Compute how important each option is: the share of an objective's variance that it explains alone.

The method is functional ANOVA (Hutter, Hoos and Leyton-Brown, "An Efficient Approach for Assessing Hyperparameter
Importance", ICML 2014), as implemented in Optuna with scikit-learn's forests. An option that only some trials have is
explained from these trials, together with all other options that each of these trials has.
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
from edgekit.report.search.objectives import StudyObjective
from edgekit.report.search.studies import Study, objective_value, option_names

MIN_TRIALS = 20
"""Smallest number of complete trials with an option. With fewer, a forest cannot distinguish an effect from chance."""
TREES, SEED = 48, 0
LEAVE_OUT_PARTS, TREES_PER_PART = 4, 16
"""The range of an importance comes from repeating the computation `LEAVE_OUT_PARTS` times with `TREES_PER_PART` trees.
Each repetition leaves out another of `LEAVE_OUT_PARTS` equal parts of the trials."""
LEVELS = 10
"""Numbers are binned to this many levels, because the computing time grows with the number of levels. On a log scale,
their logarithms are binned."""


@dataclass(frozen=True)
class Importance:
    """The share of the variance that an option explains alone, and the range of this share if trials are left out."""

    objective: StudyObjective
    key: str
    share: float
    low: float
    high: float
    trials: int


@dataclass(frozen=True)
class Importances:
    """Rows by objective, in the order of the space. `left_out` says what cannot be explained, and why."""

    rows: tuple[Importance, ...]
    left_out: tuple[str, ...]

    def of(self, objective: StudyObjective) -> list[Importance]:
        """Return the rows of an objective."""
        return [row for row in self.rows if row.objective == objective]


def of(study: Study) -> Importances:
    """Return the importances for all objectives of a study. Without Optuna they are empty, and `left_out` says so."""
    if importlib.util.find_spec("optuna") is None:
        return Importances((), ("Importances need Optuna: pip install optuna.",))
    trials = [each for each in study.complete if each["same_as"] is None]
    keys = list(option_names(study))
    trials_with = {key: [each for each in trials if key in each["parameters"]] for key in keys}
    too_few = {
        key: len(trials_with_key) for key, trials_with_key in trials_with.items() if len(trials_with_key) < MIN_TRIALS
    }
    left_out = [too_few_message(len(trials), too_few)] if too_few else []
    groups: dict[tuple[int, ...], list[str]] = {}
    for key in (key for key in keys if key not in too_few):
        groups.setdefault(tuple(each["number"] for each in trials_with[key]), []).append(key)
    rows: list[Importance] = []
    for objective in study.objectives if groups else ():
        if len({objective_value(each, objective) for each in trials}) == 1:
            left_out.append(f"Nothing to explain: every trial has the same {objective.title}.")
            continue
        trials_with_key = [
            _group_importances(study, objective, group_keys, trials_with[group_keys[0]])
            for group_keys in groups.values()
        ]
        rows += sorted((row for group in trials_with_key for row in group), key=lambda row: keys.index(row.key))
    return Importances(tuple(rows), tuple(left_out))


def too_few_message(complete: int, few: Mapping[str, int]) -> str:
    """Say for which options too few trials are complete, and how many trials are needed."""
    if complete < MIN_TRIALS:
        return (
            f"Too few trials to tell what each option did: {complete} complete, and at least {MIN_TRIALS} are needed."
        )
    which = ", ".join(f"{key} ({count} complete)" for key, count in few.items())
    return f"Too few trials to tell what these did: {which}; at least {MIN_TRIALS} are needed."


def _group_importances(
    study: Study, objective: StudyObjective, keys: Sequence[str], trials: Sequence[TrialRow]
) -> list[Importance]:
    """Return the importances of the options `keys`, which exactly the trials `trials` have.

    The computation also includes every other option that all of these trials have.
    """
    entries = study.row["space"]
    space = {key: _Levels([row for row in entries if row["key"] == key]) for key in option_names(study)}
    levels_by_key = {
        key: levels for key, levels in space.items() if all(key in trial["parameters"] for trial in trials)
    }
    shares = _variance_shares(objective, levels_by_key, trials, TREES)
    parts = [
        [trial for place, trial in enumerate(trials) if place % LEAVE_OUT_PARTS != part]
        for part in range(LEAVE_OUT_PARTS)
    ]
    partial_shares = (
        [_variance_shares(objective, levels_by_key, part, TREES_PER_PART) for part in parts] if shares else []
    )
    rows = []
    for key in (key for key in keys if key in shares):
        ends = [shares[key], *(part.get(key, shares[key]) for part in partial_shares)]
        rows.append(Importance(objective, key, shares[key], min(ends), max(ends), len(trials)))
    return rows


def _variance_shares(
    objective: StudyObjective, beside: Mapping[str, _Levels], trials: Sequence[TrialRow], trees: int
) -> dict[str, float]:
    """Return the share of each option. The result is empty if the objective has the same value in all trials."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # tqdm warns about missing widgets, and Optuna about experimental features
        import optuna
        from optuna.importance import FanovaImportanceEvaluator

    logging.getLogger("optuna").setLevel(logging.ERROR)
    answers = [objective_value(each, objective) for each in trials]
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
    """Encodes the values of an option for a forest. `rows` are all entries of the option's key."""

    def __init__(self, rows: Sequence[DimensionRow]) -> None:
        listed = [each for row in rows for each in row.get("choices", ())]
        self._choices = list(dict.fromkeys(json.dumps(each, sort_keys=True) for each in listed))
        self._log = all(row.get("log") for row in rows)
        if not self._choices:
            self._low, self._high = (
                min(map(self._of, _range_ends(rows, "low"))),
                max(map(self._of, _range_ends(rows, "high"))),
            )

    def distribution(self) -> Any:
        """Return Optuna's distribution of the levels."""
        from optuna.distributions import CategoricalDistribution, IntDistribution

        return CategoricalDistribution(range(len(self._choices))) if self._choices else IntDistribution(0, LEVELS - 1)

    def level(self, value: Any) -> int:
        """Return the level of a value, from 0.

        A number outside the range gets the nearest level, and an unknown choice gets the first level.
        """
        if self._choices:
            text = json.dumps(value, sort_keys=True)
            return self._choices.index(text) if text in self._choices else 0
        share = (self._of(value) - self._low) / ((self._high - self._low) or 1)
        return min(LEVELS - 1, max(0, int(share * LEVELS)))

    def _of(self, number: float) -> float:
        return math.log(number) if self._log else float(number)


def _range_ends(rows: Sequence[DimensionRow], which: Literal["low", "high"]) -> list[float]:
    return [row[which] for row in rows if which in row]
