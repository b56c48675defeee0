"""The bound of a drop: against published figures, the equation it solves, its limits, and what it promises."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgekit.core.errors import ConfigError, DataError
from edgekit.core.tasks.accuracy_drop import (
    budget_violation,
    can_meet,
    drop_of_answers,
    drop_of_counts,
    too_few_samples,
)


def bound(lost: int, gained: int, samples: int, confidence: float = 0.95) -> float:
    return drop_of_counts(lost, gained, samples, confidence).bound_pp / 100


@pytest.mark.parametrize(
    ("first_only", "second_only", "samples", "low", "high"),
    [
        # the data of Cavo et al. (2012) and of Bentur et al. (2009), as worked out in Fagerland, Lydersen & Laake,
        # "Statistical Analysis of Contingency Tables" (2017), chapter 8, and its R package contingencytables
        (6, 16, 161, -0.124, -0.005),
        (1, 7, 21, -0.517, -0.026),
    ],
)
def test_two_published_intervals(first_only: int, second_only: int, samples: int, low: float, high: float) -> None:
    """A two-sided interval of 95 % is two one-sided bounds of 97.5 %."""
    assert bound(first_only, second_only, samples, 0.975) == pytest.approx(high, abs=5e-4)
    assert -bound(second_only, first_only, samples, 0.975) == pytest.approx(low, abs=5e-4)


def most_likely_gained(lost: int, gained: int, samples: int, difference: float) -> float:
    """The share gained that maximises the multinomial likelihood under a difference, by golden section."""

    def log_likelihood(share: float) -> float:
        parts = (lost, share + difference), (gained, share), (samples - lost - gained, 1 - 2 * share - difference)
        return sum(count * math.log(max(chance, 1e-300)) for count, chance in parts if count)

    low, high = max(0.0, -difference), (1 - difference) / 2
    golden = (math.sqrt(5) - 1) / 2
    for _ in range(200):
        left, right = high - golden * (high - low), low + golden * (high - low)
        low, high = (left, high) if log_likelihood(left) < log_likelihood(right) else (low, right)
    return (low + high) / 2


@pytest.mark.parametrize(
    ("lost", "gained", "samples"), [(3, 1, 359), (10, 10, 359), (40, 5, 100), (1, 9, 60), (5, 0, 50)]
)
@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.99])
def test_at_the_bound_the_score_test_is_just_not_rejected(
    lost: int, gained: int, samples: int, confidence: float
) -> None:
    """The definition, with the likelihood maximised numerically and not by Tango's formula."""
    difference = bound(lost, gained, samples, confidence)
    share = most_likely_gained(lost, gained, samples, difference)
    variance = (2 * share + difference - difference**2) / samples
    score = (difference - (lost - gained) / samples) / math.sqrt(variance)
    assert score == pytest.approx(NormalDist().inv_cdf(confidence), rel=1e-4)


@pytest.mark.parametrize("samples", [1, 10, 359, 100_000])
@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.999])
def test_where_no_answer_differs_the_bound_has_a_closed_form(samples: int, confidence: float) -> None:
    z = NormalDist().inv_cdf(confidence)
    assert bound(0, 0, samples, confidence) == pytest.approx(z**2 / (samples + z**2), abs=1e-8)


def test_without_gains_it_is_wilsons_bound_of_a_proportion() -> None:
    lost, samples, z = 7, 359, NormalDist().inv_cdf(0.95)
    p = lost / samples
    wilson = (p + z**2 / (2 * samples) + z * math.sqrt(p * (1 - p) / samples + (z / (2 * samples)) ** 2)) / (
        1 + z**2 / samples
    )
    assert bound(lost, 0, samples) == pytest.approx(wilson, abs=1e-8)


def test_of_very_many_samples_it_is_walds() -> None:
    samples, lost, gained = 10**8, 3 * 10**6, 10**6
    variance = (lost + gained - (lost - gained) ** 2 / samples) / samples**2
    wald = (lost - gained) / samples + NormalDist().inv_cdf(0.95) * math.sqrt(variance)
    assert bound(lost, gained, samples) == pytest.approx(wald, abs=1e-7)


COUNTS = st.integers(1, 60).flatmap(
    lambda samples: st.integers(0, samples).flatmap(
        lambda lost: st.tuples(st.just(lost), st.integers(0, samples - lost), st.just(samples))
    )
)


@settings(deadline=None, max_examples=300)
@given(COUNTS, st.floats(0.51, 0.999))
def test_the_bound_lies_above_the_drop_and_is_a_difference_of_shares(
    counts: tuple[int, int, int], confidence: float
) -> None:
    drop = drop_of_counts(*counts, confidence)
    assert drop.drop_pp - 1e-6 <= drop.bound_pp <= 100
    assert (drop.lost, drop.gained, drop.samples, drop.confidence) == (*counts, confidence)


@settings(deadline=None, max_examples=300)
@given(COUNTS, st.floats(0.55, 0.99))
def test_a_sample_more_lost_raises_it_and_one_more_gained_lowers_it(
    counts: tuple[int, int, int], confidence: float
) -> None:
    lost, gained, samples = counts
    samples += 1  # one more may be lost
    here = bound(lost, gained, samples, confidence)
    assert bound(lost + 1, gained, samples, confidence) > here - 1e-9
    assert bound(lost, gained + 1, samples, confidence) < here + 1e-9
    assert bound(lost, gained, samples, confidence + 0.005) > here - 1e-9


def coverage(lost: float, gained: float, samples: int, confidence: float, draws: int = 4000) -> float:
    """How often the bound is above the true difference of two shares, over simulated validation splits."""
    generator = np.random.default_rng(5)
    found = generator.multinomial(samples, (lost, gained, 1 - lost - gained), draws)[:, :2]
    counts, times = np.unique(found, axis=0, return_counts=True)
    held = [bound(int(a), int(b), samples, confidence) >= lost - gained for a, b in counts]
    return float(times[held].sum() / draws)


@pytest.mark.parametrize("confidence", [0.9, 0.95])
@pytest.mark.parametrize(
    ("lost", "gained", "samples"),
    [
        (0.02, 0.02, 100), (0.05, 0.03, 100), (0.02, 0.02, 359), (0.03, 0.01, 359), (0.05, 0.03, 359),
        (0.20, 0.18, 359), (0.025, 0.005, 1000), (0.01, 0.01, 1000),
    ],
)  # fmt: skip
def test_it_covers_as_often_as_it_says(lost: float, gained: float, samples: int, confidence: float) -> None:
    assert coverage(lost, gained, samples, confidence) == pytest.approx(confidence, abs=0.03)


@pytest.mark.parametrize(("lost", "samples"), [(0.005, 100), (0.02, 100), (0.005, 359), (0.01, 359)])
def test_with_few_losses_and_no_gains_it_never_covers_less_often(lost: float, samples: int) -> None:
    """Where Wald's interval is empty as soon as nothing was lost, and covers far too seldom."""
    assert coverage(lost, 0.0, samples, 0.95) >= 0.945


def test_answers_become_counts() -> None:
    reference = np.array([True, True, True, False, False])
    right = np.array([False, False, True, True, False])
    drop = drop_of_answers(reference, right, 0.9)
    assert (drop.lost, drop.gained, drop.samples, drop.drop_pp) == (2, 1, 5, 20.0)
    assert drop == drop_of_counts(2, 1, 5, 0.9)
    assert drop_of_answers(right, reference, 0.9).drop_pp == -20.0


def test_what_a_budget_of_the_digits_lets_pass() -> None:
    """The figures that configs/digits.yaml and docs/results/digits.md give."""
    assert [lost for lost in range(9) if drop_of_counts(lost, 0, 359, 0.95).bound_pp <= 2.5] == [0, 1, 2, 3, 4]
    assert [lost for lost in range(9) if drop_of_counts(lost, 0, 359, 0.95).bound_pp <= 1.0] == [0]


def test_a_refusal_says_drop_bound_confidence_and_samples() -> None:
    assert budget_violation(drop_of_counts(3, 0, 359, 0.95), 2.5) is None
    assert budget_violation(drop_of_counts(3, 0, 359, 0.95), 1.0) == (
        "accuracy drop 0.84 pp may be 2.07 pp (95 % confidence, 359 samples), over 1 pp"
    )


def test_a_budget_that_so_few_samples_cannot_show_is_reported_with_what_to_do() -> None:
    message = budget_violation(drop_of_counts(0, 0, 359, 0.95), 0.5)
    assert message is not None
    assert message.startswith(
        "accuracy drop 0.00 pp may be 0.75 pp (95 % confidence, 359 samples), over 0.5 pp; 359 samples"
    )
    assert message.endswith(too_few_samples(359, 0.95))
    for word in ("raise budget.accuracy_drop_pp", "lower budget.accuracy_confidence", "more validation samples"):
        assert word in message
    assert [can_meet(359, 0.95, allowed_pp) for allowed_pp in (0.0, 0.74, 0.75, 1.0)] == [False, False, True, True]


def test_a_network_that_gained_may_meet_what_an_equal_one_cannot() -> None:
    assert budget_violation(drop_of_counts(0, 3, 359, 0.95), 0.0) is None


def test_answers_to_other_samples_are_refused() -> None:
    with pytest.raises(DataError, match="answers to 3 and to 2 samples cannot be compared"):
        drop_of_answers(np.ones(3, bool), np.ones(2, bool), 0.95)
    with pytest.raises(DataError, match="a drop needs samples, got 0"):
        drop_of_answers(np.ones(0, bool), np.ones(0, bool), 0.95)


@pytest.mark.parametrize("confidence", [0.0, 0.5, 1.0, 95.0, float("nan")])
def test_a_confidence_that_is_none_is_refused(confidence: float) -> None:
    with pytest.raises(ConfigError, match=f"accuracy_confidence: got {confidence:g}; use a fraction between 0.5 and 1"):
        drop_of_counts(0, 0, 10, confidence)
