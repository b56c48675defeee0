"""PTQ first, QAT where PTQ misses the budget."""

from __future__ import annotations

import pytest

from edgekit.stages.quantize.choice import decide


@pytest.mark.parametrize(
    ("ptq", "qat", "method", "inside"),
    [
        (0.95, 0.99, "ptq", True),  # better is not asked for, inside is
        (0.94, 0.94, "ptq", True),  # exactly the limit
        (0.9399, 0.945, "qat", True),
        (0.90, 0.93, "qat", False),
        (0.93, 0.90, "ptq", False),
        (0.93, 0.93, "ptq", False),
        (0.97, 0.90, "ptq", True),
    ],
)
def test_decide(ptq: float, qat: float, method: str, inside: bool) -> None:
    made = decide(ptq_accuracy=ptq, qat_accuracy=qat, baseline_accuracy=0.95, float_accuracy=0.96, allowed_pp=1.0)
    assert (made.method, made.inside_budget) == (method, inside)


def test_drops_are_below_the_baseline_not_below_the_float_network() -> None:
    made = decide(ptq_accuracy=0.92, qat_accuracy=0.97, baseline_accuracy=0.95, float_accuracy=0.99, allowed_pp=2.0)
    assert (round(made.ptq_drop_pp, 6), round(made.qat_drop_pp, 6)) == (3.0, -2.0)
    assert (
        made.reason
        == "PTQ is 3.00 pp below the baseline, outside the 2.00 pp allowed; QAT is 2.00 pp above the baseline"
    )
