"""Calls at a fixed rate for minutes: how the latency and the state of the machine change over time.

The load is open: call n is due at the start plus n / rate, whether or not earlier calls have ended. Its latency is
counted from that moment. A closed loop waits for each answer before it calls again, and so leaves out exactly the calls
that would have met a slow moment: "coordinated omission" (Gil Tene, "How NOT to Measure Latency", 2013, and his load
generator wrk2, https://github.com/giltene/wrk2, which uses an open load too). There is one worker: a call that is due
while another runs begins late, and its latency includes that delay.

Arrivals pause while the machine is sampled between two windows, so that the sampling is not part of any latency.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from edgekit.device.hardware import health
from edgekit.runner.errors import InputError

MIN_CALLS_PER_WINDOW = 20
"""With fewer calls in a window, percentiles mean nothing."""
SPIN_S = 200e-6
"""The sleep ends this long before a call is due and is followed by busy waiting, because a sleep ends some 60 µs late.
"""
ROUNDING_S = 1e-9
"""How far a sum of intervals may miss the end of a window because of rounding."""
PERCENTILES = (50, 90, 95, 99, 100)

Call = Callable[[], object]


@dataclass(frozen=True)
class SoakWindow:
    """The calls between two samples of the machine.

    `waiting` counts the calls that were due at the end of the window but had not begun.
    """

    start_s: float
    seconds: float
    calls: int
    waiting: int
    p50_ms: float
    p90_ms: float
    p95_ms: float
    p99_ms: float
    max_ms: float
    service_p50_ms: float  # of the call itself, counted from its actual start
    temperature_c: float | None = None
    frequency_mhz: float | None = None
    governor: str | None = None
    throttled: bool | None = None
    resident_bytes: int | None = None

    @property
    def rate_per_s(self) -> float:
        return self.calls / self.seconds

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as a dictionary for JSON."""
        return {**asdict(self), "rate_per_s": self.rate_per_s}


@dataclass
class Soak:
    """A soak as it was requested, and the windows measured so far. `cut_short` is set if Ctrl-C came before the end."""

    rate_per_s: float
    seconds: float
    window_s: float
    windows: list[SoakWindow] = field(default_factory=list)
    cut_short: bool = False


def measure_capacity(call: Call, seconds: float = 0.5, clock: Callable[[], float] = time.perf_counter) -> float:
    """Return how many calls per second are possible if each follows the one before, measured after a short warm-up."""
    call()
    start, calls = clock(), 0
    while calls < MIN_CALLS_PER_WINDOW and clock() - start < seconds:
        call()
        calls += 1
    start, calls = clock(), 0
    while (elapsed_s := clock() - start) < seconds or calls < 3:
        call()
        calls += 1
    return calls / elapsed_s


def plan_soak(rate_per_s: float, seconds: float, window_s: float | None = None) -> Soak:
    """Plan a soak for `run_soak`, in windows of equal length.

    The length is about `window_s`. By default, it is a twentieth of the time, but at least a second and at most a
    minute, or longer if `MIN_CALLS_PER_WINDOW` calls need that.
    """
    for label, value in (("rate", rate_per_s), ("time", seconds), ("window", window_s)):
        if value is not None and not 0 < value < float("inf"):
            raise InputError(f"{label}: got {value:g}; use a number above 0")
    least_s = MIN_CALLS_PER_WINDOW / rate_per_s
    length_s = min(max(seconds / 20, 1.0, least_s), max(60.0, least_s)) if window_s is None else window_s
    if length_s < least_s * (1 - 1e-9):
        raise InputError(
            f"window: {length_s:g} s at {rate_per_s:g} per s hold only {length_s * rate_per_s:.3g} calls, "
            f"but percentiles need {MIN_CALLS_PER_WINDOW}; use windows of {least_s:.3g} s or more, or a "
            f"higher rate"
        )
    if length_s > seconds * (1 + 1e-9):
        raise InputError(f"window: {length_s:.3g} s do not fit into {seconds:g} s; measure longer")
    return Soak(rate_per_s, seconds, seconds / round(seconds / length_s))


def run_soak(
    call: Call,
    soak: Soak,
    on_window: Callable[[SoakWindow], object] | None = None,
    read_health: Callable[[], health.HealthReading] = health.read_health,
    clock: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], object] = time.sleep,
) -> Soak:
    """Run a planned soak and fill in its windows. Ctrl-C ends it, and the windows measured so far are kept."""
    try:
        _measure(call, soak, on_window, read_health, clock, sleep)
    except KeyboardInterrupt:
        soak.cut_short = True
    return soak


def _measure(call: Call, soak: Soak, on_window: Any, read_health: Any, clock: Any, sleep: Any) -> None:
    interval_s, windows = 1 / soak.rate_per_s, round(soak.seconds / soak.window_s)
    latencies, services = array("d"), array("d")  # emptied after each window, so that they do not grow
    number, closed_windows, window_start_s = 0, 0, 0.0
    before = read_health()
    origin = clock()  # moved on by the length of each pause
    while True:
        now, due_s = clock(), number * interval_s
        end_s = max(now - origin, due_s)
        if end_s >= (closed_windows + 1) * soak.window_s - ROUNDING_S:
            end_s = max((closed_windows + 1) * soak.window_s, now - origin)
            closed_windows = int((end_s + ROUNDING_S) / soak.window_s)
            if latencies:
                after = read_health()
                waiting = max(0, int((end_s + ROUNDING_S) * soak.rate_per_s) - number)
                window = _window(window_start_s, end_s, waiting, latencies, services, before, after)
                soak.windows.append(window)
                if on_window is not None:
                    on_window(window)
                del latencies[:], services[:]
                before, window_start_s = after, end_s
                origin += clock() - now
            if closed_windows >= windows:
                return
            continue
        due = origin + due_s
        _wait(due, clock, sleep)
        started = clock()
        call()
        ended = clock()
        latencies.append(ended - due)
        services.append(ended - started)
        number += 1


def _wait(until: float, clock: Callable[[], float], sleep: Callable[[float], object]) -> None:
    """Sleep until shortly before the moment, then wait busily."""
    left = until - clock()
    if left > SPIN_S:
        sleep(left - SPIN_S)
    while clock() < until:
        pass


def _window(
    start_s: float,
    end_s: float,
    waiting: int,
    latencies: array[float],
    services: array[float],
    before: health.HealthReading,
    after: health.HealthReading,
) -> SoakWindow:
    p50, p90, p95, p99, most = np.percentile(np.array(latencies) * 1e3, PERCENTILES).tolist()
    return SoakWindow(
        start_s=start_s,
        seconds=end_s - start_s,
        calls=len(latencies),
        waiting=waiting,
        p50_ms=p50,
        p90_ms=p90,
        p95_ms=p95,
        p99_ms=p99,
        max_ms=most,
        service_p50_ms=float(np.median(np.array(services)) * 1e3),
        temperature_c=after.temperature_c,
        frequency_mhz=after.frequency_mhz,
        governor=after.governor,
        throttled=health.throttled_between(before, after),
        resident_bytes=after.resident_bytes,
    )
