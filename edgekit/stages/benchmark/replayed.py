"""Replayed: whether decisions that were recorded in another run can be followed in this one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from edgekit.core.config import Budget
from edgekit.core.errors import StageError
from edgekit.core.schema.variants import CheckedVariant

FIX = "an earlier stage gave another result than the recorded one; compare their digests, or run without the record"


def check(recorded: dict[str, Any], rows: Sequence[CheckedVariant], budget: Budget, targets: Sequence[str]) -> None:
    """StageError where a recorded winner is not there to win, or breaks a limit that needs no clock."""
    names = [row["name"] for row in rows]
    held = {row["name"]: budget.limits(row["target"]) for row in rows}
    for name in recorded["too_slow"]:
        if name not in names:
            raise StageError(f"the recorded decision calls {name!r} too slow, which is not among {_list(names)}; {FIX}")
        if not held[name].on_latency:
            raise StageError(f"the recorded decision calls {name!r} too slow, but the budget has no latency_p50_ms")
    for name in recorded["buys_nothing"]:
        if name not in names:
            raise StageError(
                f"the recorded decision says that {name!r} gives no speed-up, which is not among {_list(names)}; {FIX}"
            )
    for target, name in recorded["winners"].items():
        if target not in targets:
            raise StageError(f"the recorded winner {name!r} is for target {target!r}; this run has {_list(targets)}")
        row = next((row for row in rows if row["name"] == name and row["target"] == target), None)
        if row is None:
            own = [row["name"] for row in rows if row["target"] == target]
            raise StageError(f"the recorded winner of {target} is {name!r}, which is not among {_list(own)}; {FIX}")
        if not row["inside_budget"]:
            reasons = "; ".join(row["reasons"])
            raise StageError(f"the recorded winner of {target}, {name}, is outside the budget: {reasons}; {FIX}")
        if name in recorded["too_slow"]:
            raise StageError(f"the record contradicts itself: {name} wins {target} and is too slow; remove it")
        if name in recorded["buys_nothing"]:
            raise StageError(f"the record contradicts itself: {name} wins {target} and gives no speed-up; remove it")


def _list(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"
