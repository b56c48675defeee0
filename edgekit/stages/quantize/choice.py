"""The choice between PTQ and QAT, by the accuracy budget."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

EPSILON_PP = 1e-9


@dataclass(frozen=True)
class Decision:
    """The choice and the validation accuracies it was made on, as fractions; PTQ and QAT in simulation."""

    method: Literal["ptq", "qat"]
    reason: str
    inside_budget: bool
    ptq_accuracy: float
    qat_accuracy: float
    baseline_accuracy: float
    float_accuracy: float

    @property
    def ptq_drop_pp(self) -> float:
        """PTQ below the baseline; negative where it is better."""
        return 100 * (self.baseline_accuracy - self.ptq_accuracy)

    @property
    def qat_drop_pp(self) -> float:
        """QAT below the baseline; negative where it is better."""
        return 100 * (self.baseline_accuracy - self.qat_accuracy)


def decide(
    *, ptq_accuracy: float, qat_accuracy: float, baseline_accuracy: float, float_accuracy: float, allowed_pp: float
) -> Decision:
    """PTQ if it is inside the budget, else QAT if that is, else the better of them; a tie goes to PTQ."""
    ptq_pp, qat_pp = 100 * (baseline_accuracy - ptq_accuracy), 100 * (baseline_accuracy - qat_accuracy)
    limit_pp = allowed_pp + EPSILON_PP
    method: Literal["ptq", "qat"] = "ptq"
    if ptq_pp <= limit_pp:
        reason = f"PTQ {_against(ptq_pp)}, inside the {allowed_pp:.2f} pp allowed: no tuning is needed"
    elif qat_pp <= limit_pp:
        method = "qat"
        reason = f"PTQ {_against(ptq_pp)}, outside the {allowed_pp:.2f} pp allowed; QAT {_against(qat_pp)}"
    else:
        method = "qat" if qat_accuracy > ptq_accuracy else "ptq"
        reason = (
            f"neither is inside the {allowed_pp:.2f} pp allowed: PTQ {_against(ptq_pp)}, QAT {_against(qat_pp)}; "
            f"{method.upper()} loses least"
        )
    return Decision(
        method=method,
        reason=reason,
        inside_budget=min(ptq_pp, qat_pp) <= limit_pp,
        ptq_accuracy=ptq_accuracy,
        qat_accuracy=qat_accuracy,
        baseline_accuracy=baseline_accuracy,
        float_accuracy=float_accuracy,
    )


def _against(drop_pp: float) -> str:
    side = "below" if drop_pp >= 0 else "above"
    return f"is {abs(drop_pp):.2f} pp {side} the baseline"
