"""A proposed trial, the outcome of its evaluation, and the context that a study passes to an evaluation."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict, get_args

from edgekit.core.errors import StageError
from edgekit.core.schema.study import AnchorRow, Fidelity, TrialRow, TrialState
from edgekit.search.objectives import Objective


@dataclass(frozen=True)
class Trial:
    """A proposed trial, with its parameters by config key and the same values as `key=value` settings."""

    number: int
    batch: int
    parameters: dict[str, Any]
    settings: tuple[str, ...]


class TrialOutcome(TypedDict):
    """The result of evaluating a trial: a `TrialRow` without the fields that the study adds.

    `values` and `intervals` have one entry for each objective, in the same order.
    """

    state: TrialState
    rung: Fidelity
    reason: str
    values: list[float | None]
    intervals: list[list[float] | None]
    constraints: dict[str, float]
    variants: dict[str, str]
    took_s: dict[str, float]


@dataclass
class BatchContext:
    """The state of the study that an evaluation can read, and the fields that it can fill in besides the outcomes.

    Parameters
    ----------
    folder
        The folder of the study.
    batch
        The number of the batch.
    earlier_trials
        The trials of all earlier batches, by number.
    front
        Those of the earlier trials that are on the Pareto front.
    record_outcome
        `record_outcome(number, outcome)` stores an outcome before the batch is complete, so that the trial is not
        evaluated again if the search is killed.
    baselines
        The baseline's files, which are timed in every round; the evaluation fills them in with the first batch.
    baseline_accuracy
        The accuracy (a fraction) to which the budget's accuracy drop is relative, if the evaluation knows it.
    is_noisy
        Set by the evaluation if a round of this batch was noisy.
    """

    folder: Path
    batch: int
    earlier_trials: Sequence[TrialRow]
    front: Sequence[TrialRow]
    record_outcome: Callable[[int, TrialOutcome], None]
    baselines: list[AnchorRow] = field(default_factory=list)
    baseline_accuracy: float | None = None
    is_noisy: bool = False


Evaluate = Callable[[Sequence[Trial], BatchContext], Sequence[TrialOutcome]]
"""Returns the outcomes of a batch of trials in the same order. It is called without finished and repeated trials."""


def check_outcome(outcome: TrialOutcome, objectives: Sequence[Objective]) -> TrialOutcome:
    """Check an outcome. If a value is missing or not finite, return a failed outcome with the reason instead.

    Raises
    ------
    StageError
        The outcome has the wrong number of values, or an unknown state or fidelity.
    """
    lengths = {len(outcome["values"]), len(outcome["intervals"])}
    if lengths != {len(objectives)}:
        raise StageError(
            f"an evaluation returned {sorted(lengths)} values and intervals for {len(objectives)} objectives"
        )
    if outcome["state"] not in get_args(TrialState) or outcome["rung"] not in get_args(Fidelity):
        raise StageError(f"an evaluation returned the state {outcome['state']!r} at the fidelity {outcome['rung']!r}")
    faults = [
        f"{each.title}: got {value}"
        for each, value in zip(objectives, outcome["values"])
        if (value is None and outcome["state"] == "complete") or (value is not None and not _is_valid(each, value))
    ]
    faults += [
        f"constraint {name}: got {value}" for name, value in outcome["constraints"].items() if not _is_finite(value)
    ]
    if not faults:
        return outcome
    return {
        **outcome,
        "state": "failed",
        "reason": "; ".join(faults),
        "values": [None] * len(objectives),
        "intervals": [None] * len(objectives),
        "constraints": {},
    }


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_valid(objective: Objective, value: float) -> bool:
    return _is_finite(value) and (objective.name == "accuracy" or value > 0)
