"""The choice between PTQ, QAT and mixed precision, by the accuracy budget."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from edgekit.core import tasks
from edgekit.core.config import Budget
from edgekit.core.tasks import Answered
from edgekit.core.tasks.accuracy_drop import Drop, refusal

Method = Literal["ptq", "qat", "mixed"]
METHODS: tuple[Method, ...] = get_args(Method)
NO_QAT = "not tried: quantize.qat is false"
TITLES = {"ptq": "PTQ", "qat": "QAT", "mixed": "mixed"}


@dataclass(frozen=True)
class Decision:
    """The choice, and what it was made on: accuracies on validation as fractions, and drops below the baseline.

    `…_below_float` are drops below the float network that was quantized: shown, but not compared with the budget.
    All in simulation. The reasons against each are empty where there is none; QAT and mixed precision have no figures
    where they were not tried.
    """

    method: Method
    reason: str
    inside_budget: bool
    baseline_accuracy: float
    float_accuracy: float
    ptq_accuracy: float
    qat_accuracy: float | None
    mixed_accuracy: float | None
    float_drop: Drop
    ptq_drop: Drop
    qat_drop: Drop | None
    mixed_drop: Drop | None
    ptq_below_float: Drop
    qat_below_float: Drop | None
    against_ptq: str
    against_qat: str
    against_mixed: str


def why_not_mixed(right: Mapping[str, Answered], budget: Budget, max_float_layers: int) -> str:
    """Why no layer is to be kept in float; empty where that may bring inside the budget what int8 alone does not."""
    tried = [name for name in ("float", "ptq", "qat") if name in right]
    outside = {name: refusal(_drop(right, name, budget), budget.accuracy_drop_pp) for name in tried}
    if not (outside["ptq"] and outside.get("qat", NO_QAT)):
        return f"not needed: {'QAT' if outside['ptq'] else 'PTQ'} is inside the budget"
    if outside["float"]:
        return "not tried: the float network is outside the budget too, and no layer in float repairs that"
    return "" if max_float_layers else "not tried: max_float_layers is 0"


def decide(right: Mapping[str, Answered], budget: Budget, no_mixed: str = "not tried") -> Decision:
    """The first inside the budget of PTQ, QAT and mixed; else the one with the least bound, a tie to the first of them.

    `right` holds what `baseline`, `float`, `ptq` and, where they were made, `qat` and `mixed` answered of the
    validation split; `no_mixed` is why the last was not.
    """
    allowed_pp = budget.accuracy_drop_pp
    drops: dict[Method, Drop] = {name: _drop(right, name, budget) for name in METHODS if name in right}
    refused = {name: refusal(drop, allowed_pp) for name, drop in drops.items()}
    inside = [name for name in drops if not refused[name]]
    method = inside[0] if inside else min(drops, key=lambda name: drops[name].bound_pp)
    against = {name: refused[name] or "" for name in drops}
    if inside:
        not_needed = f"not needed: {TITLES[method]} is inside the budget"
        against = {name: said if name == method else said or not_needed for name, said in against.items()}
    return Decision(
        method=method,
        reason=_reason(method, drops, refused, allowed_pp),
        inside_budget=bool(inside),
        baseline_accuracy=tasks.accuracy(right["baseline"]),
        float_accuracy=tasks.accuracy(right["float"]),
        ptq_accuracy=tasks.accuracy(right["ptq"]),
        qat_accuracy=tasks.accuracy(right["qat"]) if "qat" in right else None,
        mixed_accuracy=tasks.accuracy(right["mixed"]) if "mixed" in right else None,
        float_drop=_drop(right, "float", budget),
        ptq_drop=drops["ptq"],
        qat_drop=drops.get("qat"),
        mixed_drop=drops.get("mixed"),
        ptq_below_float=_drop(right, "ptq", budget, "float"),
        qat_below_float=_drop(right, "qat", budget, "float") if "qat" in right else None,
        against_ptq=against["ptq"],
        against_qat=against.get("qat", NO_QAT),
        against_mixed=against.get("mixed", no_mixed),
    )


def _drop(right: Mapping[str, Answered], name: str, budget: Budget, below: str = "baseline") -> Drop:
    return tasks.drop(right[below], right[name], budget.accuracy_confidence)


def _reason(
    method: Method, drops: Mapping[Method, Drop], refused: Mapping[Method, str | None], allowed_pp: float
) -> str:
    if method == "ptq" and not refused[method]:
        return f"PTQ {_against(drops[method])}, inside the {allowed_pp:g} pp allowed: no tuning is needed"
    reasons = "; ".join(f"{TITLES[name]}: {why}" for name, why in refused.items() if why)
    if not refused[method]:
        return f"{reasons}; {TITLES[method]} {_against(drops[method])}, inside it"
    return f"none is inside the {allowed_pp:g} pp allowed; {reasons}; {TITLES[method]} has the least bound"


def _against(drop: Drop) -> str:
    side = "below" if drop.drop_pp >= 0 else "above"
    sure = f"{100 * drop.confidence:g} % sure, {drop.samples} samples"
    return f"is {abs(drop.drop_pp):.2f} pp {side} the baseline, its drop at most {drop.bound_pp:.2f} pp ({sure})"
