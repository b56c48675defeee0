"""Other activity on the machine during a measurement, and whether two results may be compared.

    with conditions.ConditionsRecorder() as recorder:
        samples_ms = bench.time_interleaved(calls, rounds, calls_per_round, warmup, on_round=recorder.sample)
    seen = recorder.result(conditions.noise(samples_ms["a"], rounds))
    conditions.noise_reasons(seen)      # reasons in words; none on a quiet machine

A value that the kernel does not report is None, and is never guessed. The yardstick is a piece of work that is always
the same. The time that it takes reveals a change of the machine's pace even if a virtual machine hides the clock's
frequency, and it tells apart two machines that have the same name.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import numpy as np

from edgekit.device.hardware import emulation, health
from edgekit.device.measure import counters, intervals
from edgekit.runner import cpu

MAX_OTHERS_SHARE = 0.05
"""Share of the cores' time that other processes may take. An idle system's own services stay below one hundredth."""
MAX_STEAL_SHARE = 0.02
"""Share of the cores' time that the hypervisor may withhold. At this limit, one call in fifty is affected, but not the
median."""
MAX_PREEMPTED_PER_S = 50.0
"""How often the measured process may be interrupted in a second. Another process on the same core causes hundreds of
interruptions, and the services of an idle system cause a few."""
MAX_CLOCK_CHANGE = 0.05
"""How much the clock may change: clocks of 2 to 4 GHz have steps of 100 MHz, so one step is allowed, but not two."""
MAX_PACE_CHANGE = 0.10
"""How much the yardstick's time may change: on a quiet machine, its readings differ by a few hundredths."""
MAX_NOISE = 0.05
"""How much the rounds of one variant may spread: 0.005 to 0.02 is usual if nothing else runs."""
SHORTEST_S = 0.5
"""Shares are computed only for measurements of at least this length, because the kernel counts in hundredths of a
second."""
COMPARED_KEYS = {
    "host": "host",
    "cpu": "processor",
    "cores": "cores",
    "machine": "architecture",
    "system": "system",
    "python": "Python",
    "numpy": "numpy",
    "threads": "threads",
    "device": "device",
    "governor": "governor",
    "emulator": "emulator",
    "calls_per_round": "calls in a round",
    "warmup_per_round": "untimed calls before each round",
}
"""Keys of a result's `conditions` that must be equal for latencies to be compared, and their names in messages."""


@dataclass(frozen=True)
class Conditions:
    """Activity on the machine from before the first call to after the last. A value is None if it is not reported.

    Shares are of the time of all cores that this process may use. `pace_ms` is the median time of the yardstick.
    `pace_change` and `clock_change` say by what share the highest sample exceeds the lowest: 0.1 is 10 %.
    """

    seconds: float
    others_share: float | None  # taken by processes that are not the measured one
    steal_share: float | None  # withheld by the hypervisor
    preempted_per_s: float | None  # how often the measured process had to make room for another
    quota_stops: int | None  # how often the quota of its cgroup stopped it
    load_before: float | None  # mean of one minute
    load_after: float | None
    governor: str | None
    clock_mhz: float | None  # of the fastest core, the median of all samples
    clock_change: float | None
    throttled: bool | None
    temperature_before_c: float | None
    temperature_after_c: float | None
    pace_ms: float
    pace_change: float
    noise: float | None = None  # spread of the rounds' p50s, see `noise`

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as a dictionary for JSON."""
        return asdict(self)


class ConditionsRecorder:
    """A context manager that records the conditions of a measurement. `root` is for tests.

    Set `children` if child processes do the measured work. They must then end before the `with` block does. Without
    `children`, child processes count as other processes.
    """

    def __init__(self, children: bool = False, root: str | os.PathLike[str] = "/") -> None:
        self._children, self._root = children, root
        self._paces_ms: list[float] = []
        self._clocks_mhz: list[float] = []

    def __enter__(self) -> ConditionsRecorder:
        self._before, self._load_before = health.read_health(self._root), counters.load_average()
        self.sample()
        self._started = counters.read_counters(self._children, self._root)
        return self

    def __exit__(self, *_: object) -> None:
        self._ended = counters.read_counters(self._children, self._root)
        self.sample()
        self._after, self._load_after = health.read_health(self._root), counters.load_average()

    def sample(self, _round: int = 0) -> None:
        """Sample the clock and the yardstick between two rounds, which takes a few milliseconds."""
        self._paces_ms.append(counters.yardstick_ms())
        clock_mhz = health.fastest_core_mhz(self._root)
        if clock_mhz is not None:
            self._clocks_mhz.append(clock_mhz)

    def result(self, noise: float | None = None) -> Conditions:
        """Return the conditions. To be called after the `with` block."""
        start, end = self._started, self._ended
        duration_s = end.at_s - start.at_s
        capacity_s = cpu.usable_core_count() * duration_s
        busy_s, steal_s, preempted, stops = (
            _grown(getattr(start, name), getattr(end, name))
            if duration_s >= SHORTEST_S or name == "quota_stops"
            else None
            for name in ("busy_s", "steal_s", "preempted", "quota_stops")
        )
        clocks = self._clocks_mhz[1:] or self._clocks_mhz  # the clock may be low before the first call
        return Conditions(
            seconds=duration_s,
            others_share=None if busy_s is None else max(busy_s - (end.own_s - start.own_s), 0) / capacity_s,
            steal_share=None if steal_s is None else steal_s / capacity_s,
            preempted_per_s=None if preempted is None else preempted / duration_s,
            quota_stops=None if stops is None else int(stops),
            load_before=self._load_before,
            load_after=self._load_after,
            governor=self._after.governor,
            clock_mhz=median(clocks) if clocks else None,
            clock_change=_change(clocks),
            throttled=health.throttled_between(self._before, self._after),
            temperature_before_c=self._before.temperature_c,
            temperature_after_c=self._after.temperature_c,
            pace_ms=median(self._paces_ms),
            pace_change=_change(self._paces_ms) or 0.0,
            noise=noise,
        )


def noise(samples_ms: np.ndarray, rounds: int) -> float | None:
    """Return how much the rounds' p50s spread: 1.4826 times their median absolute deviation, over their median.

    `samples_ms` (rounds * calls,) are from `bench.time_interleaved`. Returns None for fewer rounds than an interval
    needs.
    """
    if rounds < intervals.MIN_ROUNDS:
        return None
    return spread(intervals.round_p50s(samples_ms, rounds))


def spread(p50s_ms: np.ndarray | Sequence[float]) -> float:
    """Return the spread of p50s, (rounds,): their standard deviation (estimated robustly) divided by their median."""
    center = float(np.median(p50s_ms))
    return float(1.4826 * np.median(np.abs(np.asarray(p50s_ms) - center)) / center)


def noise_reasons(seen: Conditions) -> list[str]:
    """Return the reasons not to rely on a measurement, with their values; an empty list if there are none."""
    changed = f"the clock changed by {seen.clock_change or 0:.0%}"
    reasons = {
        f"other processes took {seen.others_share or 0:.0%} of the processor's time": _exceeds(
            seen.others_share, MAX_OTHERS_SHARE
        ),
        f"the hypervisor withheld {seen.steal_share or 0:.0%} of the processor's time": _exceeds(
            seen.steal_share, MAX_STEAL_SHARE
        ),
        f"interrupted {seen.preempted_per_s or 0:.0f} times a second": _exceeds(
            seen.preempted_per_s, MAX_PREEMPTED_PER_S
        ),
        f"stopped {seen.quota_stops} times by the quota of its cgroup": _exceeds(seen.quota_stops, 0),
        f"{changed} (around {seen.clock_mhz or 0:,.0f} MHz)": _exceeds(seen.clock_change, MAX_CLOCK_CHANGE),
        f"the processor was at {seen.temperature_after_c or 0:.0f} °C": (seen.temperature_after_c or 0) >= health.HOT_C,
        "the processor throttled, or was short of voltage": bool(seen.throttled),
        f"the same work took up to {seen.pace_change:.0%} longer at times": _exceeds(seen.pace_change, MAX_PACE_CHANGE),
        f"the rounds spread by {seen.noise or 0:.0%}": _exceeds(seen.noise, MAX_NOISE),
    }
    return [reason for reason, applies in reasons.items() if applies]


def to_record(seen: Conditions) -> dict[str, Any]:
    """Return the conditions in the form in which a result stores them, beside `bench.machine_facts()`."""
    known = {"governor": seen.governor, "emulator": emulation.emulator() or None}
    return {**known, "seen": seen.to_dict(), "disturbed": noise_reasons(seen)}


def differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[str]:
    """Return the reasons not to compare the latencies of two results; an empty list if there are none.

    `first` and `second` are the `conditions` of the two results. A value that only one of them has is a difference. Of
    `interpreters` (versions by name), only those that both results have must agree.
    """
    reasons = [
        f"{label}: {_value_text(first.get(key))} and {_value_text(second.get(key))}"
        for key, label in COMPARED_KEYS.items()
        if first.get(key) != second.get(key)
    ]
    versions = [each.get("interpreters") or {} for each in (first, second)]
    reasons += [
        f"{name}: {versions[0][name]} and {versions[1][name]}"
        for name in sorted(set(versions[0]) & set(versions[1]))
        if versions[0][name] != versions[1][name]
    ]
    paces_ms = [each["seen"]["pace_ms"] for each in (first, second) if each.get("seen")]
    if len(paces_ms) == 2 and max(paces_ms) > (1 + MAX_PACE_CHANGE) * min(paces_ms):
        reasons.append(f"pace: the same work took {paces_ms[0]:.3g} ms and {paces_ms[1]:.3g} ms")
    for position, each in (("first", first), ("second", second)):
        if each.get("disturbed") is None:
            reasons.append(f"the {position} measurement has no record of what else the machine did; measure it again")
        elif each["disturbed"]:
            reasons.append(f"the {position} measurement was noisy: {'; '.join(each['disturbed'])}")
    return reasons


def _exceeds(value: float | None, limit: float) -> bool:
    return value is not None and value > limit


def _value_text(value: Any) -> str:
    return "unknown" if value is None else str(value)


def _change(values: Sequence[float]) -> float | None:
    """Return by what share the highest value exceeds the lowest. Of many values, 10 % are ignored at either end."""
    if not values:
        return None
    low, high = np.quantile(values, (0.1, 0.9)) if len(values) >= intervals.MIN_ROUNDS else (min(values), max(values))
    return float(high / low - 1)


def _grown(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else after - before
