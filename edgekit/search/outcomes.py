"""The outcomes that an evaluation returns, checked before they are told."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import get_args

from edgekit.core.errors import StageError
from edgekit.core.schema.study import Rung, TrialState
from edgekit.search.objectives import Objective
from edgekit.search.trial import Outcome


def checked(outcome: Outcome, objectives: Sequence[Objective]) -> Outcome:
    """The outcome; as failed, with the reason, where a value is no finite number. StageError for one of another form.

    A complete trial has all values.
    """
    lengths = {len(outcome["values"]), len(outcome["intervals"])}
    if lengths != {len(objectives)}:
        raise StageError(
            f"an evaluation returned {sorted(lengths)} values and intervals for {len(objectives)} objectives"
        )
    if outcome["state"] not in get_args(TrialState) or outcome["rung"] not in get_args(Rung):
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
