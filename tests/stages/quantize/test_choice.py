"""PTQ first, QAT where PTQ misses the budget, layers in float where both do; against the baseline on equal samples."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.core.config import Budget
from edgekit.stages.quantize.choice import Decision, decide, reason_against_mixed

SAMPLES = 1000
BASELINE = 950


def answers(right: int) -> np.ndarray:
    """The first `right` samples are answered rightly."""
    return np.arange(SAMPLES) < right


def decide_counts(
    ptq: int, qat: int, allowed_pp: float = 1.0, confidence: float = 0.95, floating: int = 960
) -> Decision:
    right = {"baseline": BASELINE, "float": floating, "ptq": ptq, "qat": qat}
    budget = Budget(accuracy_drop_pp=allowed_pp, accuracy_confidence=confidence)
    return decide({name: answers(count) for name, count in right.items()}, budget)


@pytest.mark.parametrize(
    ("ptq", "qat", "method", "inside"),
    [
        (950, 990, "ptq", True),  # better is not asked for, inside is
        (946, 946, "ptq", True),
        (940, 948, "qat", True),  # a drop of the budget, but its bound is 1.7 pp
        (900, 930, "qat", False),
        (930, 900, "ptq", False),
        (930, 930, "ptq", False),
        (970, 900, "ptq", True),
    ],
)
def test_decide(ptq: int, qat: int, method: str, inside: bool) -> None:
    decision = decide_counts(ptq, qat)
    assert (decision.method, decision.inside_budget) == (method, inside)
    assert bool(getattr(decision, f"against_{method}")) is not inside


MIXED = {"baseline": BASELINE, "float": 960}


@pytest.mark.parametrize(
    ("ptq", "qat", "mixed", "method", "inside"),
    [
        (946, 946, 950, "ptq", True),  # no layer is kept in float that need not be
        (900, 948, 960, "qat", True),
        (900, 930, 948, "mixed", True),
        (900, 930, 935, "mixed", False),
        (900, 935, 930, "qat", False),
        (935, 900, 935, "ptq", False),  # a tie goes to what costs least
    ],
)
def test_mixed_precision_comes_last(ptq: int, qat: int, mixed: int, method: str, inside: bool) -> None:
    right = {name: answers(count) for name, count in {**MIXED, "ptq": ptq, "qat": qat, "mixed": mixed}.items()}
    decision = decide(right, Budget())
    assert (decision.method, decision.inside_budget) == (method, inside)
    assert decision.mixed_accuracy == mixed / SAMPLES
    for other in {"ptq", "qat", "mixed"} - {method}:
        assert getattr(decision, f"against_{other}")
    assert bool(getattr(decision, f"against_{method}")) is not inside


@pytest.mark.parametrize(
    ("floating", "ptq", "qat", "most", "why"),
    [
        (960, 950, 900, 3, "not needed: PTQ is inside the budget"),
        (960, 900, 950, 3, "not needed: QAT is inside the budget"),
        (960, 900, 900, 3, ""),
        (960, 900, 900, 0, "not tried: max_float_layers is 0"),
        (
            900,
            900,
            900,
            3,
            "not tried: the float network is outside the budget too, so keeping layers in float cannot help",
        ),
    ],
)
def test_layers_are_kept_only_where_that_is_needed_and_may_help(
    floating: int, ptq: int, qat: int, most: int, why: str
) -> None:
    right = {"baseline": BASELINE, "float": floating, "ptq": ptq, "qat": qat}
    answered = {name: answers(count) for name, count in right.items()}
    assert reason_against_mixed(answered, Budget(), most) == why
    decision = decide(answered, Budget(), why)
    assert (decision.mixed_accuracy, decision.mixed_drop, decision.against_mixed) == (None, None, why)


def test_the_confidence_decides_how_much_may_be_lost() -> None:
    assert decide_counts(943, 950, confidence=0.8).method == "ptq"
    assert decide_counts(943, 950, confidence=0.99).method == "qat"


def test_drops_are_below_the_baseline_not_below_the_float_network() -> None:
    decision = decide_counts(920, 970, allowed_pp=2.0, floating=990)
    assert (decision.ptq_drop.drop_pp, decision.qat_drop.drop_pp, decision.float_drop.drop_pp) == (3.0, -2.0, -4.0)
    assert (decision.ptq_drop.lost, decision.ptq_drop.gained) == (30, 0)
    assert (decision.qat_drop.lost, decision.qat_drop.gained) == (0, 20)
    assert (decision.ptq_accuracy, decision.qat_accuracy, decision.float_accuracy) == (0.92, 0.97, 0.99)


def test_the_cost_of_quantizing_alone_is_stated_against_the_float_network() -> None:
    decision = decide_counts(920, 970, allowed_pp=2.0, floating=960)
    below_float = decision.ptq_below_float, decision.qat_below_float
    assert [drop.drop_pp for drop in below_float] == [4.0, -1.0]
    assert [(drop.lost, drop.gained) for drop in below_float] == [(40, 0), (0, 10)]
    assert all(drop.bound_pp > drop.drop_pp for drop in below_float)


def test_pairs_count_not_only_accuracies() -> None:
    """The same accuracy with other samples right says less of the drop."""
    right = {name: answers(BASELINE) for name in ("baseline", "float", "ptq", "qat")}
    right["ptq"] = np.roll(right["ptq"], 20)
    decision = decide(right, Budget(accuracy_drop_pp=0.8))
    assert (decision.ptq_drop.lost, decision.ptq_drop.gained, decision.ptq_drop.drop_pp) == (20, 20, 0.0)
    assert decision.method == "qat"


def test_what_is_refused_says_drop_bound_confidence_and_samples() -> None:
    decision = decide_counts(920, 970, allowed_pp=2.0)
    bound_pp = decision.ptq_drop.bound_pp
    assert (
        decision.against_ptq
        == f"accuracy drop 3.00 pp may be {bound_pp:.2f} pp (95 % confidence, 1000 samples), over 2 pp"
    )
    assert decision.reason.startswith(
        f"PTQ: {decision.against_ptq}; QAT is 2.00 pp above the baseline, its drop at most -"
    )
    neither = decide_counts(900, 930)
    assert neither.reason.startswith("none is inside the 1 pp allowed; PTQ: accuracy drop 5.00 pp may be ")
    assert neither.against_qat.startswith("accuracy drop 2.00 pp may be ")
    assert decide_counts(950, 960).against_qat == "not needed: PTQ is inside the budget"
