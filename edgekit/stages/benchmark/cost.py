"""What a call costs, by variant: the processor's time in the rounds of timing, and energy where something shows it.

The processor's time is that of all threads of this process, around the timed calls of each round. Costs add up, so
what is told is a mean, and its interval is over the openings. A mean of calls is what a million of them cost; a median
would leave out the slow ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

from edgekit.core import progress
from edgekit.core.config import shortened_repr
from edgekit.core.errors import ConfigError
from edgekit.core.progress_state import duration
from edgekit.core.schema.cost import CallCost, CallCosts, Estimate
from edgekit.data.paths import expand_path
from edgekit.device.measure import intervals
from edgekit.device.measure.bench import FRESH_CALLS
from edgekit.device.measure.intervals import MIN_ROUNDS
from edgekit.measure import lane
from edgekit.measure.energy import EnergySource, EnergyUnavailable, PowerMeter, find_rapl_counters
from edgekit.stages.benchmark.config import Cost
from edgekit.stages.benchmark.timings import Timings

Opener = Callable[[], Callable[[], object]]
PROTOCOL = (
    "mean of one call at batch 1, execute only, in the rounds of timing: processor time of all threads of the process"
)
OFF = "benchmark.cost.energy_s is 0, so it is not measured"


def source_of(cost: Cost) -> EnergySource | str:
    """What shows energy, the config's meter or else RAPL; or in words why nothing does. ConfigError for a bad meter."""
    if not cost.energy_s:
        return OFF
    try:
        if cost.meter is None or cost.meter_unit is None:
            return find_rapl_counters()
        meter = PowerMeter(expand_path(cost.meter, "benchmark.cost.meter"), cost.meter_unit)
        meter.read()
        return meter
    except EnergyUnavailable as error:
        if cost.meter is not None:
            raise ConfigError(
                f"benchmark.cost.meter: {error}; got {shortened_repr(cost.meter)}; "
                "name a file that a meter's program writes"
            ) from None
        return str(error)


def measure_costs(
    names: Sequence[str], openers: Mapping[str, Opener], timings: Timings, source: EnergySource | str, energy_s: float
) -> CallCosts:
    """Of all `names`, the baseline first. An energy source that fails leaves energy unknown and says why."""
    drawn, why = None, source if isinstance(source, str) else ""
    if not isinstance(source, str):
        try:
            drawn = measure_energy({name: openers[name] for name in names}, source, energy_s)
        except EnergyUnavailable as error:
            why = str(error)
            progress.announce(f"The energy of a call could not be measured: {why}.")
    return described(names, timings, drawn, why)


def described(names: Sequence[str], timings: Timings, drawn: Drawn | None, why: str) -> CallCosts:
    """The rows; `why`: energy is unknown."""
    return {
        "confidence": timings.confidence,
        "protocol": PROTOCOL,
        "calls": [_call(name, names[0], timings, drawn) for name in names],
        "energy": None
        if drawn is None
        else {
            "source": drawn.source,
            "idle_watts": estimate(drawn.idle_watts, timings.confidence),
            "rounds": ROUNDS,
            "seconds": drawn.seconds,
        },
        "energy_unknown": why,
    }


def estimate(values: np.ndarray, confidence: float) -> Estimate:
    """The mean of `values` (openings,) and its interval."""
    low, high = intervals.interval_bounds(values, confidence, np.mean)
    return {"value": float(np.mean(values)), "low": low, "high": high}


def _call(name: str, baseline: str, timings: Timings, drawn: Drawn | None) -> CallCost:
    def of(values: Mapping[str, np.ndarray], less: bool) -> Estimate:
        """Of the variant, or of what it saves: opening by opening, for what slows a whole one cancels."""
        both = min(len(values[baseline]), len(values[name]))
        return estimate(values[baseline][:both] - values[name][:both] if less else values[name], timings.confidence)

    cpu_s = {each: _by_opening(timings, each) / 1000 for each in (baseline, name)}
    saves = name != baseline
    return {
        "name": name,
        "cpu_s": of(cpu_s, less=False),
        "saved_cpu_s": of(cpu_s, less=True) if saves else None,
        "joules": of(drawn.joules, less=False) if drawn else None,
        "saved_joules": of(drawn.joules, less=True) if drawn and saves else None,
        "joules_with_idle": float(np.mean(drawn.with_idle[name])) if drawn else None,
    }


def _by_opening(timings: Timings, name: str) -> Any:
    """Milliseconds of the processor a call, (openings,): the mean of each opening's rounds."""
    return np.mean(np.reshape(timings.cpu_ms[name], (timings.rounds_of(name), -1)), axis=1)


ROUNDS = MIN_ROUNDS
IDLE = ""
"""The name of the block in which nothing is called."""


@dataclass(frozen=True)
class Drawn:
    """Joules of a call by name, (rounds,) each, without and with what the idle machine takes; its watts (rounds,)."""

    source: str
    seconds: float
    joules: Mapping[str, np.ndarray]
    with_idle: Mapping[str, np.ndarray]
    idle_watts: np.ndarray


@lane.measuring()
def measure_energy(
    openers: Mapping[str, Callable[[], Callable[[], object]]], source: EnergySource, seconds: float
) -> Drawn:
    """`ROUNDS` blocks of `seconds` of each, opened anew for each block. Unreadable where `source` fails.

    Counters and meters are too coarse for the rounds of timing, so these are rounds of their own, of longer blocks.
    What the idle machine takes in a round is subtracted from that round's blocks. What other processes take is not.
    """
    order = [IDLE, *openers]
    progress.announce(f"Measuring energy with {source.name} takes about {duration(ROUNDS * len(order) * seconds)}.")
    watts, gross = np.empty(ROUNDS), {name: np.empty(ROUNDS) for name in openers}
    took_s = {name: np.empty(ROUNDS) for name in openers}
    with progress.step("measuring energy", "round", ROUNDS) as shown:
        for number in range(ROUNDS):
            start = number % len(order)
            for name in order[start:] + order[:start]:
                if name == IDLE:
                    spent = source.measure(lambda: time.sleep(seconds))
                    watts[number] = spent.joules / spent.seconds
                    continue
                block = _Block(openers[name](), seconds)
                spent = source.measure(block)
                gross[name][number] = spent.joules / block.calls
                took_s[name][number] = spent.seconds / block.calls
            shown.update(number + 1)
    net = {name: gross[name] - watts * took_s[name] for name in openers}
    return Drawn(source.name, seconds, net, gross, watts)


class _Block:
    """Calls one after another for some seconds, counted; the first ones of what was just opened come before."""

    def __init__(self, call: Callable[[], object], seconds: float) -> None:
        self._call, self._seconds, self.calls = call, seconds, 0
        for _ in range(FRESH_CALLS):
            call()

    def __call__(self) -> None:
        until = perf_counter() + self._seconds
        while perf_counter() < until:
            self._call()
            self.calls += 1
