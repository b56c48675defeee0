"""Choose between PTQ, QAT and mixed precision by the accuracy budget."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from edgekit.core import tasks
from edgekit.core.config import Budget
from edgekit.core.tasks import SampleResults
from edgekit.core.tasks.accuracy_drop import Drop, budget_violation

Method = Literal["ptq", "qat", "mixed"]
METHODS: tuple[Method, ...] = get_args(Method)
NO_QAT = "not tried: quantize.qat is false"
TITLES = {"ptq": "PTQ", "qat": "QAT", "mixed": "mixed"}


@dataclass(frozen=True)
class Decision:
    """The chosen method and the measurements behind it, all in simulation on the validation split.

    Accuracies are fractions, and drops are relative to the baseline. The drops in `…_below_float` are relative to the
    float network that was quantized; they are reported but not compared with the budget. `against_…` is the reason
    against a method, empty if there is none. QAT and mixed precision have None for measurements if they were not tried.
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


def reason_against_mixed(scores: Mapping[str, SampleResults], budget: Budget, max_float_layers: int) -> str:
    """Return why mixed precision is not tried; empty if it may meet a budget that int8 alone does not meet."""
    tried = [name for name in ("float", "ptq", "qat") if name in scores]
    refusals = {name: budget_violation(_drop(scores, name, budget), budget.accuracy_drop_pp) for name in tried}
    if not (refusals["ptq"] and refusals.get("qat", NO_QAT)):
        return f"not needed: {'QAT' if refusals['ptq'] else 'PTQ'} is inside the budget"
    if refusals["float"]:
        return "not tried: the float network is outside the budget too, so keeping layers in float cannot help"
    return "" if max_float_layers else "not tried: max_float_layers is 0"


def decide(scores: Mapping[str, SampleResults], budget: Budget, mixed_reason: str = "not tried") -> Decision:
    """Choose the first of PTQ, QAT and mixed precision that is inside the budget.

    If none is, the method with the smallest upper bound of the drop is chosen, the first of them in a tie.

    Parameters
    ----------
    scores : mapping of SampleResults
        Per-sample scores on the validation split of `baseline`, `float`, `ptq` and, if they were tried, `qat` and
        `mixed`.
    budget : Budget
        The limits of the run.
    mixed_reason : str
        Why mixed precision was not tried.
    """
    allowed_pp = budget.accuracy_drop_pp
    drops: dict[Method, Drop] = {name: _drop(scores, name, budget) for name in METHODS if name in scores}
    refusals = {name: budget_violation(drop, allowed_pp) for name, drop in drops.items()}
    inside = [name for name in drops if not refusals[name]]
    method = inside[0] if inside else min(drops, key=lambda name: drops[name].bound_pp)
    against = {name: refusals[name] or "" for name in drops}
    if inside:
        not_needed = f"not needed: {TITLES[method]} is inside the budget"
        against = {name: reason if name == method else reason or not_needed for name, reason in against.items()}
    return Decision(
        method=method,
        reason=_explain_decision(method, drops, refusals, allowed_pp),
        inside_budget=bool(inside),
        baseline_accuracy=tasks.accuracy(scores["baseline"]),
        float_accuracy=tasks.accuracy(scores["float"]),
        ptq_accuracy=tasks.accuracy(scores["ptq"]),
        qat_accuracy=tasks.accuracy(scores["qat"]) if "qat" in scores else None,
        mixed_accuracy=tasks.accuracy(scores["mixed"]) if "mixed" in scores else None,
        float_drop=_drop(scores, "float", budget),
        ptq_drop=drops["ptq"],
        qat_drop=drops.get("qat"),
        mixed_drop=drops.get("mixed"),
        ptq_below_float=_drop(scores, "ptq", budget, "float"),
        qat_below_float=_drop(scores, "qat", budget, "float") if "qat" in scores else None,
        against_ptq=against["ptq"],
        against_qat=against.get("qat", NO_QAT),
        against_mixed=against.get("mixed", mixed_reason),
    )


def _drop(scores: Mapping[str, SampleResults], name: str, budget: Budget, reference: str = "baseline") -> Drop:
    return tasks.drop(scores[reference], scores[name], budget.accuracy_confidence)


def _explain_decision(
    method: Method, drops: Mapping[Method, Drop], refusals: Mapping[Method, str | None], allowed_pp: float
) -> str:
    if method == "ptq" and not refusals[method]:
        return f"PTQ {_describe_drop(drops[method])}, inside the {allowed_pp:g} pp allowed: no tuning is needed"
    reasons = "; ".join(f"{TITLES[name]}: {reason}" for name, reason in refusals.items() if reason)
    if not refusals[method]:
        return f"{reasons}; {TITLES[method]} {_describe_drop(drops[method])}, inside it"
    return f"none is inside the {allowed_pp:g} pp allowed; {reasons}; {TITLES[method]} has the lowest bound"


def _describe_drop(drop: Drop) -> str:
    side = "below" if drop.drop_pp >= 0 else "above"
    confidence_note = f"{100 * drop.confidence:g} % confidence, {drop.samples} samples"
    difference = f"{abs(drop.drop_pp):.2f} pp {side} the baseline"
    return f"is {difference}, its drop at most {drop.bound_pp:.2f} pp ({confidence_note})"
