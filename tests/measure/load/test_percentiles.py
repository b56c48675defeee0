"""Percentiles and their intervals for latencies with a known distribution."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.core.errors import ConfigError
from edgekit.device.measure import conditions, intervals
from edgekit.measure.load.percentiles import LEAST_IN_ROUND, noise, percentiles
from edgekit.measure.load.scenarios import Load


def test_values_are_numpys() -> None:
    values = np.random.default_rng(0).exponential(3.0, 1000)
    result = percentiles(values, 0.95)
    assert list(result) == ["p50", "p90", "p95", "p99"]
    for name, each in result.items():
        assert each.value_ms == np.percentile(values, int(name[1:]))
        assert each.low_ms is not None and each.high_ms is not None
        assert each.low_ms <= each.value_ms <= each.high_ms


@pytest.mark.numerics
@pytest.mark.numerics
def test_intervals_hold_the_truth_about_as_often_as_they_say() -> None:
    generator = np.random.default_rng(1)
    held = {"p50": 0, "p90": 0, "p95": 0}
    for _ in range(100):
        for name, each in percentiles(generator.exponential(1.0, 3000), 0.9).items():
            truth = -np.log(1 - int(name[1:]) / 100)
            if name in held and each.low_ms is not None and each.high_ms is not None:
                held[name] += each.low_ms <= truth <= each.high_ms
    assert all(80 <= count <= 98 for count in held.values()), held


def test_neighbours_that_are_alike_widen_the_interval() -> None:
    """A queue that is long for a while says less than as many independent latencies."""
    generator = np.random.default_rng(2)
    alike = np.repeat(generator.exponential(1.0, 30), 100)
    shuffled = generator.permutation(alike)

    def width(values: np.ndarray) -> float:
        result = percentiles(values, 0.95)["p90"]
        assert result.low_ms is not None and result.high_ms is not None
        return result.high_ms - result.low_ms

    assert width(alike) > 3 * width(shuffled)


def test_many_are_binned_and_few_have_no_interval() -> None:
    values = np.random.default_rng(3).exponential(1.0, 200_000)
    p99 = percentiles(values, 0.95)["p99"]
    assert p99.low_ms is not None and p99.high_ms is not None
    assert p99.low_ms <= p99.value_ms * 1.001 and p99.high_ms >= p99.value_ms * 0.999
    assert p99.high_ms - p99.low_ms < 0.1 * p99.value_ms
    few = percentiles(values[:99], 0.95)["p50"]
    assert (few.low_ms, few.high_ms) == (None, None)


def test_noise_is_the_spread_of_neighbours_medians() -> None:
    steady = np.random.default_rng(4).normal(1.0, 0.02, 3007)
    assert noise(steady) == pytest.approx(0.0, abs=0.01)
    slowed = steady * np.repeat([1.0, 1.2], [1500, 1507])
    result = noise(slowed)
    assert result is not None and result > conditions.MAX_NOISE
    least = LEAST_IN_ROUND * intervals.MIN_ROUNDS
    assert noise(steady[:least]) is not None
    assert noise(steady[: least - 1]) is None and noise(steady[:5]) is None


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"scenario": "serve"}, "scenario: got 'serve'; use one of single_stream, server, offline"),
        ({"seconds": 0.0}, "seconds: got 0; use a finite number above 0"),
        ({"seconds": float("inf")}, "seconds: got inf"),
        ({"rate_per_s": -1.0}, "rate: got -1"),
        ({"p99_bound_ms": float("nan")}, "p99: got nan"),
        ({"queries": 0}, "queries: got 0; use a whole number, 1 or more"),
        ({"scenario": "offline", "rate_per_s": 5.0}, "rate: got 5 for offline; only server has a rate"),
    ],
)
def test_a_load_that_makes_no_sense_is_refused(keywords: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Load(**{"scenario": "server", "seconds": 1.0, **keywords})  # type: ignore[arg-type]
    assert message in str(caught.value)
