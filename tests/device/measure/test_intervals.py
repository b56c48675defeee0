"""Confidence intervals: their coverage by simulation, and noise that must not mislead them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgekit.device.measure import intervals
from edgekit.runner.errors import InputError
from edgekit.stages.benchmark import BenchmarkConfig
from edgekit.stages.benchmark.decision import is_too_wide

CALLS = 5


def rounds_of(p50s_ms: np.ndarray) -> np.ndarray:
    """Samples (rounds * CALLS,) of which every call of a round took what the round took."""
    return np.repeat(p50s_ms, CALLS)


def noise(generator: np.random.Generator, rounds: int, kind: str) -> np.ndarray:
    """Logarithms of a variant's p50 in each round, with what machines do to it."""
    values = generator.normal(0, 0.02, rounds)
    if kind == "outliers":
        values += 0.3 * (generator.random(rounds) < 0.1)
    if kind == "skewed":
        values = generator.exponential(0.05, rounds)
    return values


@pytest.mark.numerics
@pytest.mark.parametrize(("rounds", "kind"), [(10, "normal"), (10, "outliers"), (15, "skewed"), (30, "outliers")])
def test_equal_variants_differ_no_more_often_than_promised(rounds: int, kind: str) -> None:
    generator = np.random.default_rng(rounds)
    tries, differences = 250, 0
    for _ in range(tries):
        first, second = (np.exp(noise(generator, rounds, kind)) for _ in range(2))
        found = intervals.ratio_interval(rounds_of(first), rounds_of(second), rounds, 0.95)
        differences += found.low > 1 or found.high < 1
    assert differences / tries < 0.09  # 5 % are promised, and 250 tries of exactly that show up to 8.4 % (99 %)


@pytest.mark.numerics
def test_an_interval_of_few_rounds_still_covers_the_median() -> None:
    generator = np.random.default_rng(1)
    found = [intervals.p50_interval(rounds_of(np.exp(noise(generator, 10, "normal"))), 10, 0.99) for _ in range(500)]
    covered = sum(each.low_ms <= 1.0 <= each.high_ms for each in found) / len(found)
    assert covered > 0.985  # 99 % are promised; the plain percentile interval reaches 97 to 98 %


def test_a_clear_difference_is_found() -> None:
    generator = np.random.default_rng(2)
    for _ in range(50):
        fast, slow = (np.exp(noise(generator, 10, "outliers")) for _ in range(2))
        found = intervals.ratio_interval(rounds_of(1.5 * slow), rounds_of(fast), 10, 0.99)
        assert 1.05 < found.low <= found.ratio <= found.high
        assert found.ratio == pytest.approx(1.5, rel=0.1)


def test_a_machine_that_changes_its_pace_slows_both_alike() -> None:
    pace = np.where(np.arange(20) < 10, 1.0, 1.4)
    fast, slow = rounds_of(pace), rounds_of(1.1 * pace)
    assert vars(intervals.ratio_interval(slow, fast, 20, 0.99)) == pytest.approx(
        {"ratio": 1.1, "low": 1.1, "high": 1.1}
    )


def test_the_order_is_that_of_the_rounds_not_of_the_whole_run() -> None:
    """One call's p50 over the run falls into the slow half of it, the other's into the fast half."""
    pace = np.where(np.arange(20) < 10, 1.0, 1.4)
    fast, slow = pace.copy(), 1.1 * pace
    fast[9] *= 1.4
    slow[10] /= 1.4
    samples = {"fast": rounds_of(fast), "slow": rounds_of(slow), "other": rounds_of(2 * pace)}
    assert np.median(samples["fast"]) > np.median(samples["slow"])
    places = intervals.relative_latencies(samples, 20)
    assert sorted(places, key=places.__getitem__) == ["fast", "slow", "other"]
    assert places["other"] / places["fast"] == pytest.approx(2.0)


def test_the_same_samples_give_the_same_interval() -> None:
    generator = np.random.default_rng(3)
    first, second = (rounds_of(np.exp(noise(generator, 12, "normal"))) for _ in range(2))
    assert intervals.ratio_interval(first, second, 12, 0.99) == intervals.ratio_interval(first, second, 12, 0.99)
    backwards = intervals.ratio_interval(second, first, 12, 0.99)
    assert intervals.ratio_interval(first, second, 12, 0.99).low == pytest.approx(1 / backwards.high, rel=1e-3)


def test_less_confidence_or_more_rounds_is_a_narrower_interval() -> None:
    values = np.exp(noise(np.random.default_rng(4), 400, "normal"))

    def width(rounds: int, confidence: float) -> float:
        found = intervals.p50_interval(rounds_of(values[:rounds]), rounds, confidence)
        return found.high_ms - found.low_ms

    assert width(40, 0.8) < width(40, 0.99)
    assert width(400, 0.99) < width(40, 0.99)


def test_many_rounds_are_resampled_in_parts() -> None:
    found = intervals.p50_interval(np.linspace(1.0, 2.0, 3000), 3000, 0.99)
    assert 1.4 < found.low_ms < found.p50_ms < found.high_ms < 1.6


def test_a_clock_that_stood_still_is_no_error() -> None:
    still = np.zeros(50)
    assert intervals.ratio_interval(still, still, 10, 0.99).ratio == 1.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rounds": 9}, "rounds: got 9; an interval needs at least 10"),
        ({"rounds": 11}, "samples_ms: got 50; give as many for each of the 11 rounds"),
        ({"samples_ms": np.empty(0)}, "samples_ms: got 0"),
        ({"confidence": 1.0}, "confidence: got 1; use a fraction"),
    ],
)
def test_what_gives_no_interval_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        intervals.p50_interval(**{"samples_ms": np.ones(50), "rounds": 10, "confidence": 0.99, **arguments})


def test_the_benchmarks_options_always_give_an_interval() -> None:
    least = {name: BenchmarkConfig.model_fields[name].metadata for name in ("rounds", "confidence")}
    assert least["rounds"][0].ge == intervals.MIN_ROUNDS
    assert 0 < least["confidence"][0].ge < least["confidence"][1].le < 1


def an_opening(generator: np.random.Generator, hours: float, instance: float) -> np.ndarray:
    """Logarithms of 20 calls (20,) of two variants each, (2, 20), as a busy machine gives them.

    The pace drifts with the `hours` and wanders slowly, for both alike; neighbouring calls are alike (AR(1), 0.9), one
    in twenty is interrupted, and every instance has a pace of its own while it lives.
    """
    steps = generator.normal(0, 0.01 * (1 - 0.9**2) ** 0.5, (2, 20))
    calls = np.empty((2, 20))
    calls[:, 0] = generator.normal(0, 0.01, 2)
    for number in range(1, 20):
        calls[:, number] = 0.9 * calls[:, number - 1] + steps[:, number]
    interrupted = generator.exponential(0.5, (2, 20)) * (generator.random((2, 20)) < 0.05)
    own = generator.normal(0, instance, (2, 1))
    return calls + interrupted + own + 0.1 * hours + generator.normal(0, 0.05)


def differs(generator: np.random.Generator, slower: float, instance: float = 0.004) -> bool:
    """One comparison with the stage's numbers: 10 openings at a time, until the interval is narrow or 150 are done."""
    config = BenchmarkConfig()
    done: list[np.ndarray] = []
    while True:
        done += [an_opening(generator, (len(done) + number) / 150, instance) for number in range(10)]
        first, second = np.exp(np.concatenate(done, axis=1))
        found = intervals.ratio_interval(second * (1 + slower), first, len(done), config.confidence)
        if len(done) == config.most_rounds or not is_too_wide(found.low, found.high, config.tie_margin):
            return not found.low <= 1 <= found.high


@pytest.mark.numerics
def test_a_variant_does_not_differ_from_itself_and_three_percent_are_found() -> None:
    generator = np.random.default_rng(20)
    tries = 400
    assert sum(differs(generator, 0.0) for _ in range(tries)) <= 0.05 * tries
    assert sum(differs(generator, 0.03) for _ in range(tries // 2)) >= 0.95 * tries // 2


@pytest.mark.numerics
def test_one_opening_each_would_find_differences_that_do_not_exist() -> None:
    """What the test above would show if rounds of the same two instances were resampled."""
    generator = np.random.default_rng(21)
    found = 0
    for _ in range(100):
        lasting = generator.normal(0, 0.004, (2, 1))
        calls = [an_opening(generator, 0.0, 0.0) + lasting for _ in range(30)]
        first, second = np.exp(np.concatenate(calls, axis=1))
        ratio = intervals.ratio_interval(second, first, 30, 0.99)
        found += not ratio.low <= 1 <= ratio.high
    assert found > 15


@pytest.mark.parametrize(
    ("low", "high", "wide"),
    [
        (0.992, 1.01, False), (0.98, 1.02, True), (1.01, 1.05, True), (1.02, 1.04, False), (0.7, 0.95, True),
        (0.5, 0.8, False), (1.2, 1.6, False), (1.05, 1.6, True),
    ],
)  # fmt: skip
def test_rounds_are_added_while_the_interval_is_wide_and_near_one(low: float, high: float, wide: bool) -> None:
    assert is_too_wide(low, high, 0.1) is wide
    assert is_too_wide(1 / high, 1 / low, 0.1) is wide
