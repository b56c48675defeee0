"""The choice between PTQ and QAT, by the accuracy budget."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from edgekit.config import Budget
from edgekit.paired import Drop, compare, refusal


@dataclass(frozen=True)
class Decision:
    """The choice, and what it was made on: accuracies on validation as fractions, and drops below the baseline.

    PTQ and QAT in simulation. The reasons against either are empty where there is none.
    """

    method: Literal["ptq", "qat"]
    reason: str
    inside_budget: bool
    baseline_accuracy: float
    float_accuracy: float
    ptq_accuracy: float
    qat_accuracy: float
    float_drop: Drop
    ptq_drop: Drop
    qat_drop: Drop
    against_ptq: str
    against_qat: str


def decide(right: Mapping[str, np.ndarray], budget: Budget) -> Decision:
    """PTQ if it is inside the budget, else QAT if that is, else the better of them; a tie goes to PTQ.

    `right` says of `baseline`, `float`, `ptq` and `qat` whether each validation sample was answered rightly, (n,) bool.
    """
    allowed_pp = budget.accuracy_drop_pp
    drops = {
        name: compare(right["baseline"], right[name], budget.accuracy_confidence) for name in ("float", "ptq", "qat")
    }
    ptq, qat = drops["ptq"], drops["qat"]
    ptq_refused, qat_refused = refusal(ptq, allowed_pp), refusal(qat, allowed_pp)
    method: Literal["ptq", "qat"] = "ptq"
    against_ptq, against_qat = ptq_refused or "", qat_refused or ""
    if not ptq_refused:
        reason = f"PTQ {_against(ptq)}, inside the {allowed_pp:g} pp allowed: no tuning is needed"
        against_qat = against_qat or "not needed: PTQ is inside the budget"
    elif not qat_refused:
        method = "qat"
        reason = f"PTQ: {ptq_refused}; QAT {_against(qat)}, inside it"
    else:
        method = "qat" if qat.drop_pp < ptq.drop_pp else "ptq"
        reason = (
            f"neither is inside the {allowed_pp:g} pp allowed; PTQ: {ptq_refused}; QAT: {qat_refused}; "
            f"{method.upper()} loses least"
        )
    return Decision(
        method=method,
        reason=reason,
        inside_budget=not (ptq_refused and qat_refused),
        baseline_accuracy=float(np.mean(right["baseline"])),
        float_accuracy=float(np.mean(right["float"])),
        ptq_accuracy=float(np.mean(right["ptq"])),
        qat_accuracy=float(np.mean(right["qat"])),
        float_drop=drops["float"],
        ptq_drop=ptq,
        qat_drop=qat,
        against_ptq=against_ptq,
        against_qat=against_qat,
    )


def _against(drop: Drop) -> str:
    side = "below" if drop.drop_pp >= 0 else "above"
    sure = f"{100 * drop.confidence:g} % sure, {drop.samples} samples"
    return f"is {abs(drop.drop_pp):.2f} pp {side} the baseline, its drop at most {drop.bound_pp:.2f} pp ({sure})"
