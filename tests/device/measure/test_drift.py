"""Drift, growth of memory and throttling: what recorded windows show, and what they do not."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from edgekit.device.measure import drift
from edgekit.device.measure.soak import SoakWindow

MB = 1_000_000


def windows(
    p50s_ms: Sequence[float] = (2.0,) * 18, seconds: float = 10.0, resident: Sequence[int] | None = None, **each: object
) -> list[SoakWindow]:
    """Windows of 1,000 calls; `each` gives a field's value for every window, or a list of them."""
    found = []
    for number, p50 in enumerate(p50s_ms):
        more = {key: value[number] if isinstance(value, list) else value for key, value in each.items()}
        held = None if resident is None else resident[number]
        values = {"waiting": 0, "resident_bytes": held, **more}
        found.append(SoakWindow(number * seconds, seconds, 1000, p50_ms=p50, p90_ms=p50, p95_ms=p50, p99_ms=p50,
                            max_ms=p50, service_p50_ms=p50, **values))  # type: ignore[arg-type]  # fmt: skip
    return found


def noisy(generator: np.random.Generator, count: int, spread: float = 0.02) -> np.ndarray:
    return 2.0 * np.exp(generator.normal(0, spread, count))


def test_a_step_and_a_slope_are_drift_and_so_is_becoming_faster() -> None:
    generator = np.random.default_rng(0)
    step = noisy(generator, 18) * np.where(np.arange(18) < 9, 1, 1.2)
    slope = noisy(generator, 30) * np.linspace(1, 1.25, 30)
    for p50s in (step, slope, step[::-1]):
        found = drift.check_drift(windows(p50s.tolist()))
        assert found.is_present is True
        assert found.figures["p50_ratio_low"] <= found.figures["p50_ratio"] <= found.figures["p50_ratio_high"]
    assert "faster" in drift.check_drift(windows(step[::-1].tolist())).words
    assert drift.check_drift(windows(step.tolist())).figures["p50_ratio"] == pytest.approx(1.2, rel=0.03)


def test_a_constant_call_hardly_ever_drifts() -> None:
    generator = np.random.default_rng(1)
    for count, spread in ((9, 0.03), (18, 0.03), (18, 0.10), (60, 0.10)):
        answers = [drift.check_drift(windows(noisy(generator, count, spread).tolist())).is_present for _ in range(100)]
        assert answers.count(True) <= 3, (count, spread)
    assert drift.check_drift(windows(noisy(generator, 18, 0.005).tolist())).is_present is False


def test_a_change_within_the_margin_is_none() -> None:
    values = [2.0] * 9 + [2.06] * 9
    assert drift.check_drift(windows(values)).is_present is False


def test_a_trend_without_enough_evidence_is_not_reported() -> None:
    assert drift.check_drift(windows([2.0, 3.0] * 4)).is_present is None
    assert "8 windows, 9 are needed" in drift.check_drift(windows([2.0] * 8)).words
    uneven = drift.check_drift(windows([2.0, 3.0, 2.4] * 6))
    assert uneven.is_present is None and "too uneven to say" in uneven.words
    assert drift.check_memory_growth(windows()).is_present is None
    assert drift.check_memory_growth(windows([2.0] * 8, resident=[MB] * 8)).is_present is None
    assert drift.check_saturation([], 10).is_present is None


def test_throttling_is_named_with_when_and_how_warm() -> None:
    flags = [False] * 6 + [True] * 3 + [False] * 9
    warm = [40.0 + number for number in range(18)]
    found = drift.check_throttling(windows(throttled=flags, temperature_c=warm))
    assert found.is_present and "in 3 of 18 windows, first after 60 s; 57 °C at most" in found.words
    assert drift.check_throttling(windows(throttled=False, temperature_c=warm)).is_present is False
    assert drift.check_throttling(windows(throttled=None)).is_present is None


def test_a_clock_that_falls_is_throttling_where_a_governor_rules_it() -> None:
    fallen = [1800.0] * 10 + [1500.0] * 8
    found = drift.check_throttling(windows(frequency_mhz=fallen, governor="ondemand"))
    assert found.is_present and "from 1,800 to 1,500 MHz (governor ondemand)" in found.words
    assert found.figures["lowest_mhz"] == 1500
    assert drift.check_throttling(windows(frequency_mhz=fallen, governor=None)).is_present is None
    once = [1800.0] * 10 + [1500.0] + [1800.0] * 7
    assert drift.check_throttling(windows(frequency_mhz=once, governor="ondemand")).is_present is False
    assert (
        drift.check_throttling(windows(frequency_mhz=[1800.0] * 9 + [1650.0] * 9, governor="ondemand")).is_present
        is False
    )


def test_steady_growth_is_found_and_reported_per_hour() -> None:
    leak = [50 * MB + number * MB // 2 for number in range(18)]
    found = drift.check_memory_growth(windows(resident=leak))
    assert found.is_present and found.figures["mb_per_hour"] == pytest.approx(0.5 * 360)
    assert "+180.0 MB per hour" in found.words


@pytest.mark.parametrize(
    "resident",
    [
        [50 * MB] * 18,
        [50 * MB + 4 * MB * (number >= 3) for number in range(18)],  # warms up
        [50 * MB + 4 * MB * (number >= 15) for number in range(18)],  # one step of the allocator
        [50 * MB + 3 * MB * (number == 12) for number in range(18)],
        [50 * MB + number * 50_000 for number in range(18)],  # less than a megabyte
        [500 * MB + number * MB // 3 for number in range(18)],  # less than 1 %
        [60 * MB - number * MB for number in range(18)],
    ],
)
def test_memory_that_does_not_go_on_growing_is_steady(resident: list[int]) -> None:
    assert drift.check_memory_growth(windows(resident=resident)).is_present is False


def test_a_backlog_that_grows_is_saturation_and_one_that_is_worked_off_is_not() -> None:
    assert drift.check_saturation(windows(waiting=[100 * (number + 1) for number in range(18)]), 100).is_present
    assert drift.check_saturation(windows(waiting=[0] * 9 + [400] + [0] * 8), 100).is_present is False
    assert drift.check_saturation(windows(waiting=[0] * 17 + [30]), 100).is_present is False


def test_every_finding_is_json() -> None:
    found = drift.soak_findings(windows(throttled=False, resident=[50 * MB] * 18), 100.0)
    assert list(found) == ["saturated", "throttled", "drifted", "grew"]
    assert all(each.to_dict()["found"] is False for each in found.values())
