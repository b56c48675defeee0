"""Calls at a fixed rate: lateness is noticed and the load is the requested one, on a simulated clock."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from edgekit.device.hardware import health
from edgekit.device.measure import drift, soak
from edgekit.runner.errors import InputError

CALM = health.HealthReading(50.0, 1800.0, 1800.0, "performance", False, False, False, 0, 50_000_000, 10**9, 10**9)


class Clock:
    """Moves a microsecond a look, and as far as is slept."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        self.now_s += 1e-6
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds + 60e-6  # as late as a real one


def measured(
    takes_s: Callable[[int], float],
    rate_per_s: float = 100.0,
    seconds: float = 10.0,
    window_s: float = 1.0,
    look: Callable[[Clock], health.HealthReading] = lambda clock: CALM,
) -> soak.Soak:
    """A soak of calls of which the n-th takes `takes_s(n)`."""
    clock, number = Clock(), 0

    def call() -> None:
        nonlocal number
        clock.now_s += takes_s(number)
        number += 1

    planned = soak.plan_soak(rate_per_s, seconds, window_s)
    return soak.run_soak(call, planned, read_health=lambda: look(clock), clock=clock, sleep=clock.sleep)


def test_an_even_load_is_the_requested_one() -> None:
    done = measured(lambda number: 0.002)
    assert [each.calls for each in done.windows] == [100] * 10
    assert [each.start_s for each in done.windows] == pytest.approx(range(10))
    for each in done.windows:
        assert each.rate_per_s == pytest.approx(100) and each.waiting == 0
        assert each.p50_ms == pytest.approx(2, rel=0.01) and each.max_ms == pytest.approx(2, rel=0.01)
        assert each.service_p50_ms == pytest.approx(2, rel=0.01)


def test_calls_that_a_stall_delays_are_late_and_say_so() -> None:
    """No coordinated omission: of 0.3 s at 100 per s, the call itself and the thirty due meanwhile are seen."""
    done = measured(lambda number: 0.3 if number == 350 else 0.001)
    stalled = done.windows[3]
    assert stalled.calls == 100
    assert stalled.max_ms == pytest.approx(300, rel=0.01)
    # the ones behind it waited 291, 282, … ms (ten of backlog for nine of work): a third of the window is late
    assert stalled.p99_ms == pytest.approx(291, rel=0.01)
    assert stalled.p90_ms == pytest.approx(300 - 9 * 10, abs=10)
    assert stalled.p50_ms == pytest.approx(1, rel=0.05) and stalled.service_p50_ms == pytest.approx(1, rel=0.05)
    assert all(each.max_ms < 1.1 for each in done.windows if each is not stalled)
    assert drift.check_saturation(done.windows, 100).is_present is False


def test_a_rate_that_cannot_be_kept_ends_in_time_and_is_named() -> None:
    done = measured(lambda number: 0.02)
    assert sum(each.calls for each in done.windows) == pytest.approx(500, abs=2)
    assert sum(each.seconds for each in done.windows) == pytest.approx(10, abs=0.03)
    assert [each.waiting for each in done.windows] == pytest.approx([50 * (n + 1) for n in range(10)], abs=2)
    assert done.windows[-1].p50_ms == pytest.approx(4770, rel=0.02)
    found = drift.check_saturation(done.windows, 100)
    assert found.is_present and "cannot keep up with 100 per s" in found.words and "50" in found.words


def test_a_rate_just_above_what_can_be_kept_is_named_too() -> None:
    done = measured(lambda number: 0.0101, seconds=60, window_s=3)
    assert drift.check_saturation(done.windows, 100).is_present
    assert not drift.check_saturation(measured(lambda number: 0.0098, seconds=60, window_s=3).windows, 100).is_present


def test_looking_at_the_machine_is_in_no_latency() -> None:
    def slow_look(clock: Clock) -> health.HealthReading:
        clock.now_s += 0.25
        return CALM

    done = measured(lambda number: 0.002, look=slow_look)
    assert [each.calls for each in done.windows] == [100] * 10
    assert all(each.max_ms == pytest.approx(2, rel=0.01) for each in done.windows)
    assert all(each.seconds == pytest.approx(1) for each in done.windows)


def test_a_call_longer_than_a_window_makes_one_long_window() -> None:
    done = measured(lambda number: 2.5 if number == 150 else 0.001)
    assert sum(each.calls for each in done.windows) == 1000
    assert [round(each.seconds, 2) for each in done.windows] == [1, 3, *[1] * 6]
    assert done.windows[1].max_ms == pytest.approx(2500, rel=0.01)


def test_each_window_has_what_the_machine_showed_at_its_end() -> None:
    looks = iter(range(100))

    def look(clock: Clock) -> health.HealthReading:
        number = next(looks)
        return replace(CALM, temperature_c=50.0 + number, throttle_events=number // 5, resident_bytes=number)

    windows = measured(lambda number: 0.001, look=look).windows
    assert [each.temperature_c for each in windows] == [51.0 + n for n in range(10)]
    assert [each.resident_bytes for each in windows] == list(range(1, 11))
    assert [each.throttled for each in windows] == [n in (4, 9) for n in range(10)]  # where the count went up
    facts = json.loads(json.dumps(windows[0].to_dict()))
    assert facts["rate_per_s"] == pytest.approx(100) and facts["governor"] == "performance"


def test_control_c_keeps_what_was_measured() -> None:
    def takes_s(number: int) -> float:
        if number == 730:
            raise KeyboardInterrupt
        return 0.001

    done = measured(takes_s)
    assert done.cut_short and len(done.windows) == 7
    assert not measured(lambda number: 0.001).cut_short


@pytest.mark.parametrize(
    ("rate", "seconds", "window", "words"),
    [(10.0, 60.0, 1.0, ["hold only 10 calls", "windows of 2 s"]), (0.0, 60.0, 1.0, ["rate: got 0"]),
     (100.0, -1.0, 1.0, ["time: got -1"]), (100.0, 60.0, float("nan"), ["window: got nan"]),
     (100.0, 5.0, 6.0, ["do not fit into 5 s"]), (1.0, 10.0, None, ["do not fit into 10 s"])],
)  # fmt: skip
def test_a_plan_that_cannot_be_is_refused(rate: float, seconds: float, window: float | None, words: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        soak.plan_soak(rate, seconds, window)
    assert all(word in str(caught.value) for word in words)


@pytest.mark.parametrize(
    ("rate", "seconds", "windows"), [(100.0, 60.0, 20), (1000.0, 3.0, 3), (0.5, 3600.0, 60), (1000.0, 36000.0, 600)]
)
def test_windows_of_a_length_that_suits(rate: float, seconds: float, windows: int) -> None:
    planned = soak.plan_soak(rate, seconds)
    assert seconds / planned.window_s == pytest.approx(windows)
    assert planned.window_s * rate >= soak.MIN_CALLS_PER_WINDOW * 0.999


def test_capacity_is_what_a_closed_loop_reaches() -> None:
    clock = Clock()

    def call() -> None:
        clock.now_s += 0.004

    assert soak.measure_capacity(call, clock=clock) == pytest.approx(250, rel=0.01)


# --- real calls, on a clock that stands still while neighbours have the processor


def busy(seconds: float) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def soaked(call: Callable[[], object]) -> soak.Soak:
    return soak.run_soak(call, soak.plan_soak(100.0, 3.6, 0.2), clock=time.thread_time, sleep=busy)


@pytest.mark.numerics
def test_a_call_that_slows_by_a_fifth_midway_is_found() -> None:
    begun = time.thread_time()
    windows = soaked(lambda: busy(0.004 if time.thread_time() - begun < 1.8 else 0.0048)).windows
    found = drift.check_drift(windows)
    assert found.is_present, found.words
    assert found.figures["p50_ratio"] == pytest.approx(1.2, rel=0.03) and "slower" in found.words
    assert drift.check_saturation(windows, 100).is_present is False


@pytest.mark.numerics
def test_a_constant_call_is_clean() -> None:
    windows = soaked(lambda: busy(0.004)).windows
    assert [drift.soak_findings(windows, 100)[name].is_present for name in ("saturated", "drifted", "grew")] == [
        False
    ] * 3


@pytest.mark.numerics
def test_a_call_that_leaks_is_found() -> None:
    held: list[bytes] = []  # growth is held against 1 % of what is resident, and a long run of tests holds gigabytes
    found = drift.check_memory_growth(soaked(lambda: held.append(b"x" * 500_000)).windows)
    assert found.is_present, found.words
    assert found.figures["mb_per_hour"] == pytest.approx(100 * 0.5 * 3600, rel=0.5)
