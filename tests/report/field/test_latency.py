"""Percentiles from counts are close to the exact ones, and their intervals contain the truth as often as promised."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.device.monitor.histogram import BOUNDS_MS, bucket_index
from edgekit.report.field.latency import latency_ratio, percentile


def counts(values_ms: np.ndarray) -> list[int]:
    result = np.bincount([bucket_index(each) for each in values_ms.tolist()], minlength=len(BOUNDS_MS) + 1)
    return [int(each) for each in result]


@pytest.mark.parametrize("share", [0.5, 0.9, 0.99])
def test_a_percentile_is_within_a_few_percent_of_the_exact_one(share: float) -> None:
    values_ms = np.exp(0.4 * np.random.default_rng(2).normal(size=20_000))
    result = percentile(counts(values_ms), share)
    assert result is not None and result.value_ms == pytest.approx(np.quantile(values_ms, share), rel=0.05)


@pytest.mark.parametrize(("share", "answers"), [(0.5, 60), (0.5, 1000), (0.99, 3000)])
def test_an_interval_holds_the_true_percentile_as_often_as_it_promises(share: float, answers: int) -> None:
    rng = np.random.default_rng(3)
    truth_ms = float(np.quantile(np.exp(0.4 * rng.normal(size=1_000_000)), share))
    inside = 0
    for _ in range(300):
        result = percentile(counts(np.exp(0.4 * rng.normal(size=answers))), share)
        assert result is not None and result.low_ms is not None and result.high_ms is not None
        inside += result.low_ms <= truth_ms <= result.high_ms
    assert inside >= 295


def test_equal_latencies_are_hardly_ever_called_different_and_half_as_long_again_nearly_always() -> None:
    rng = np.random.default_rng(4)
    alike = different = 0
    for _ in range(200):
        then, now = (counts(np.exp(0.3 * rng.normal(size=400))) for _ in range(2))
        slower = counts(1.6 * np.exp(0.3 * rng.normal(size=400)))
        same, other = latency_ratio(then, now, 0.5), latency_ratio(then, slower, 0.5)
        assert same is not None and other is not None
        alike += same.is_slower or same.is_faster
        different += other.is_slower
    assert alike <= 2 and different >= 190


def test_the_ratio_turns_round_with_its_reports() -> None:
    rng = np.random.default_rng(5)
    a, b = counts(rng.uniform(1, 2, 500)), counts(rng.uniform(3, 6, 500))
    there, back = latency_ratio(a, b, 0.5), latency_ratio(b, a, 0.5)
    assert there is not None and back is not None and there.low and there.high and back.low and back.high
    assert there.ratio == pytest.approx(1 / back.ratio) and there.low == pytest.approx(1 / back.high)
    assert there.is_slower and back.is_faster


def test_few_calls_have_no_interval_and_none_has_no_percentile() -> None:
    few = percentile(counts(np.ones(5)), 0.5)
    assert few is not None and few.low_ms is None and "too few" in str(few)
    assert (
        percentile(counts(np.ones(0)), 0.5) is None
        and latency_ratio(counts(np.ones(0)), counts(np.ones(9)), 0.5) is None
    )
    late = latency_ratio(counts(np.ones(500)), counts(np.full(500, 60_000.0)), 0.5)
    assert late is not None and late.low is None, "above all bounds nobody knows how long it took"
