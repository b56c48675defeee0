"""Measure the cost of a call of each variant: processor time, and energy if it can be read.

The processor time is that of all threads of this process during the timed calls of each round. Costs add up, so they
are reported as means: a million calls cost a million times the mean, whereas a median would leave out the slow calls.
Each variant is opened anew several times, and the interval of a mean shows how much the mean differs between these
openings.
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
from edgekit.core.paths import expand_path
from edgekit.core.progress_state import duration
from edgekit.core.schema.cost import CallCost, CallCosts, Estimate
from edgekit.device.measure import intervals
from edgekit.device.measure.bench import FRESH_CALLS
from edgekit.device.measure.intervals import MIN_ROUNDS
from edgekit.measure import lane
from edgekit.measure.energy import EnergySource, EnergyUnavailable, PowerMeter, find_rapl_counters
from edgekit.stages.benchmark.config import CostOptions
from edgekit.stages.benchmark.timings import Timings

Opener = Callable[[], Callable[[], object]]
PROTOCOL = (
    "mean of one call at batch 1, execute only, in the rounds of timing: processor time of all threads of the process"
)
NOT_MEASURED = "benchmark.cost.energy_s is 0, so it is not measured"


def energy_source(cost: CostOptions) -> EnergySource | str:
    """Return the source of energy readings: the meter of the config, or else RAPL.

    If there is neither, the reason is returned as text. Raises ConfigError if the meter of the config cannot be read.
    """
    if not cost.energy_s:
        return NOT_MEASURED
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
                "give the path of a file that a meter's program writes"
            ) from None
        return str(error)


def measure_costs(
    names: Sequence[str], openers: Mapping[str, Opener], timings: Timings, source: EnergySource | str, energy_s: float
) -> CallCosts:
    """Return the cost of a call for each of `names`, the baseline first.

    If the energy source fails, the energy is unknown and the record says why.
    """
    energy, reason = None, source if isinstance(source, str) else ""
    if not isinstance(source, str):
        try:
            energy = measure_energy({name: openers[name] for name in names}, source, energy_s)
        except EnergyUnavailable as error:
            reason = str(error)
            progress.announce(f"The energy of a call could not be measured: {reason}.")
    return cost_record(names, timings, energy, reason)


def cost_record(names: Sequence[str], timings: Timings, energy: EnergyDraw | None, reason: str) -> CallCosts:
    """Return the record of the costs. If the energy is unknown, `reason` says why."""
    return {
        "confidence": timings.confidence,
        "protocol": PROTOCOL,
        "calls": [_call_cost(name, names[0], timings, energy) for name in names],
        "energy": None
        if energy is None
        else {
            "source": energy.source,
            "idle_watts": estimate(energy.idle_watts, timings.confidence),
            "rounds": ROUNDS,
            "seconds": energy.seconds,
        },
        "energy_unknown": reason,
    }


def estimate(values: np.ndarray, confidence: float) -> Estimate:
    """Return the mean and its interval; `values` has one value for each opening or round."""
    low, high = intervals.interval_bounds(values, confidence, np.mean)
    return {"value": float(np.mean(values)), "low": low, "high": high}


def _call_cost(name: str, baseline: str, timings: Timings, energy: EnergyDraw | None) -> CallCost:
    def estimate_of(values: Mapping[str, np.ndarray], is_saving: bool) -> Estimate:
        """Estimate the cost of a call of the variant, or what the call saves compared with the baseline.

        The saving is the difference within each opening, so that whatever slows down a whole opening cancels out.
        """
        openings = min(len(values[baseline]), len(values[name]))
        return estimate(
            values[baseline][:openings] - values[name][:openings] if is_saving else values[name], timings.confidence
        )

    cpu_s = {each: _cpu_ms_by_opening(timings, each) / 1000 for each in (baseline, name)}
    is_variant = name != baseline
    return {
        "name": name,
        "cpu_s": estimate_of(cpu_s, is_saving=False),
        "saved_cpu_s": estimate_of(cpu_s, is_saving=True) if is_variant else None,
        "joules": estimate_of(energy.joules, is_saving=False) if energy else None,
        "saved_joules": estimate_of(energy.joules, is_saving=True) if energy and is_variant else None,
        "joules_with_idle": float(np.mean(energy.joules_with_idle[name])) if energy else None,
    }


def _cpu_ms_by_opening(timings: Timings, name: str) -> Any:
    """Return the processor time of a call in ms for each opening, as the mean of the opening's rounds."""
    return np.mean(np.reshape(timings.cpu_ms[name], (timings.rounds_of(name), -1)), axis=1)


ROUNDS = MIN_ROUNDS
IDLE = ""
"""Name of the block in which nothing is called."""


@dataclass(frozen=True)
class EnergyDraw:
    """The energy of a call of each model, and the power of the idle machine in watts.

    `joules_with_idle` is the measured energy of a call. In `joules`, the energy that the idle machine would have taken
    in the same time has been subtracted. All arrays have shape (rounds,).
    """

    source: str
    seconds: float
    joules: Mapping[str, np.ndarray]
    joules_with_idle: Mapping[str, np.ndarray]
    idle_watts: np.ndarray


@lane.measuring()
def measure_energy(
    openers: Mapping[str, Callable[[], Callable[[], object]]], source: EnergySource, seconds: float
) -> EnergyDraw:
    """Measure the energy of a call of each model.

    Counters and meters are too coarse for the short rounds of timing, so energy is measured in `ROUNDS` separate
    rounds. In each of them, every model is opened anew and called for `seconds`. For the same time, nothing is called,
    to measure the energy of the idle machine, which is then subtracted. The energy that other processes use during the
    calls is not subtracted.

    Raises EnergyUnavailable if `source` fails.
    """
    order = [IDLE, *openers]
    progress.announce(f"Measuring energy with {source.name} takes about {duration(ROUNDS * len(order) * seconds)}.")
    idle_watts, joules_with_idle = np.empty(ROUNDS), {name: np.empty(ROUNDS) for name in openers}
    call_s = {name: np.empty(ROUNDS) for name in openers}
    with progress.step("measuring energy", "round", ROUNDS) as bar:
        for number in range(ROUNDS):
            start = number % len(order)
            for name in order[start:] + order[:start]:
                if name == IDLE:
                    reading = source.measure(lambda: time.sleep(seconds))
                    idle_watts[number] = reading.joules / reading.seconds
                    continue
                block = _CallBlock(openers[name](), seconds)
                reading = source.measure(block)
                joules_with_idle[name][number] = reading.joules / block.calls
                call_s[name][number] = reading.seconds / block.calls
            bar.update(number + 1)
    joules = {name: joules_with_idle[name] - idle_watts * call_s[name] for name in openers}
    return EnergyDraw(source.name, seconds, joules, joules_with_idle, idle_watts)


class _CallBlock:
    """Call a function repeatedly for some seconds, and count the calls.

    The first calls after opening the model are made before these seconds begin, and are not counted.
    """

    def __init__(self, call: Callable[[], object], seconds: float) -> None:
        self._call, self._seconds, self.calls = call, seconds, 0
        for _ in range(FRESH_CALLS):
            call()

    def __call__(self) -> None:
        deadline = perf_counter() + self._seconds
        while perf_counter() < deadline:
            self._call()
            self.calls += 1
