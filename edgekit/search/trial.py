"""A trial as it is asked, the outcome of its evaluation and the check of it, and what study and evaluation share."""

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
    """What is asked: parameters by config key, and the same as `key=value` of `--set`."""

    number: int
    batch: int
    parameters: dict[str, Any]
    settings: tuple[str, ...]


class Outcome(TypedDict):
    """What an evaluation says of a trial; a TrialRow less what the study adds. `values` follow the objectives."""

    state: TrialState
    rung: Fidelity
    reason: str
    values: list[float | None]
    intervals: list[list[float] | None]
    constraints: dict[str, float]
    variants: dict[str, str]
    took_s: dict[str, float]


@dataclass
class Context:
    """What an evaluation knows besides its trials, and what it may tell beside its outcomes.

    Parameters
    ----------
    folder
        The study's.
    batch
        Its number.
    told
        Trials of all batches before, by number.
    front
        Those of them that no other dominates.
    anchors
        Files that every round of measuring times beside the trials'; an evaluation fills them in the first batch.
    baseline_accuracy
        The fraction that the budget's drop counts from, where the evaluation knows it.
    disturbed
        Set by an evaluation whose last round of measuring was disturbed.
    finished
        `finished(number, outcome)` makes an outcome durable before the batch is whole. After a kill, that trial is not
        evaluated again.
    """

    folder: Path
    batch: int
    told: Sequence[TrialRow]
    front: Sequence[TrialRow]
    finished: Callable[[int, Outcome], None]
    anchors: list[AnchorRow] = field(default_factory=list)
    baseline_accuracy: float | None = None
    disturbed: bool = False


Evaluate = Callable[[Sequence[Trial], Context], Sequence[Outcome]]
"""Outcomes of the trials of a batch, in their order; trials that are finished or asked twice are left out."""


def checked(outcome: Outcome, objectives: Sequence[Objective]) -> Outcome:
    """The outcome; as failed, with the reason, where a value is no finite number. StageError for one of another form.

    A complete trial has all values.
    """
    lengths = {len(outcome["values"]), len(outcome["intervals"])}
    if lengths != {len(objectives)}:
        raise StageError(
            f"an evaluation returned {sorted(lengths)} values and intervals for {len(objectives)} objectives"
        )
    if outcome["state"] not in get_args(TrialState) or outcome["rung"] not in get_args(Fidelity):
        raise StageError(f"an evaluation returned the state {outcome['state']!r} at the rung {outcome['rung']!r}")
    wrong = [
        f"{each.title}: got {value}"
        for each, value in zip(objectives, outcome["values"])
        if (value is None and outcome["state"] == "complete") or (value is not None and not _sound(each, value))
    ]
    wrong += [f"constraint {name}: got {value}" for name, value in outcome["constraints"].items() if not _finite(value)]
    if not wrong:
        return outcome
    return {
        **outcome,
        "state": "failed",
        "reason": "; ".join(wrong),
        "values": [None] * len(objectives),
        "intervals": [None] * len(objectives),
        "constraints": {},
    }


def _finite(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _sound(objective: Objective, value: float) -> bool:
    return _finite(value) and (objective.name == "accuracy" or value > 0)
