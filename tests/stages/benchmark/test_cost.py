"""What a call costs: processor time of real calls, energy by a source of known watts, and why energy is unknown."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, thread_time

import numpy as np
import pytest

from edgekit.core.errors import ConfigError
from edgekit.device.measure.bench import time_interleaved, timed_openings
from edgekit.measure.energy import EnergyUnavailable, EnergyUsed
from edgekit.stages.benchmark.config import BenchmarkConfig, CostOptions
from edgekit.stages.benchmark.cost import cost_record, energy_source, measure_costs
from edgekit.stages.benchmark.timings import Timings

BUSY_S = 0.001
Opener = Callable[[], Callable[[], object]]


def works(seconds: float = BUSY_S) -> None:
    """So long on the processor, whoever else wants it."""
    until = thread_time() + seconds
    while thread_time() < until:
        pass


def sleeps() -> None:
    time.sleep(BUSY_S)


def in_two_threads() -> None:
    threads = [threading.Thread(target=works) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def opener(call: Callable[[], object]) -> Opener:
    return lambda: call


def timed(openers: dict[str, Opener]) -> Timings:
    cpu_ms: dict[str, np.ndarray] = {}
    samples_ms, opened = next(timed_openings(openers, 10, 10, 5, 1, cpu_ms=cpu_ms))
    return Timings(samples_ms, opened, 0.99, 0.1, cpu_ms)


class Known:
    """A source whose joules are those of `idle` watts, and of `busy` watts more for each second of this process."""

    name = "a known source"

    def __init__(self, idle: float, busy: float) -> None:
        self.idle, self.busy = idle, busy

    def measure(self, work: Callable[[], object]) -> EnergyUsed:
        began, before = perf_counter(), time.process_time()
        work()
        seconds = perf_counter() - began
        return EnergyUsed(self.idle * seconds + self.busy * (time.process_time() - before), seconds)


class Broken(Known):
    """It fails in the middle."""

    def measure(self, work: Callable[[], object]) -> EnergyUsed:
        raise EnergyUnavailable("the cable is out")


def test_processor_time_counts_all_threads_and_no_sleep() -> None:
    cpu_ms: dict[str, np.ndarray] = {}
    calls = {"works": works, "sleeps": sleeps, "in two threads": in_two_threads}
    samples_ms = time_interleaved(calls, 3, 5, 1, cpu_ms=cpu_ms)
    assert {name: values.shape for name, values in cpu_ms.items()} == dict.fromkeys(calls, (3,))
    assert np.mean(cpu_ms["works"]) >= 1000 * BUSY_S
    assert np.mean(cpu_ms["sleeps"]) < np.mean(cpu_ms["works"]) / 2
    assert np.mean(samples_ms["sleeps"]) >= 1000 * BUSY_S
    assert np.mean(cpu_ms["in two threads"]) >= 2 * 1000 * BUSY_S


def test_processor_time_of_growing_has_as_many_rounds_as_its_latencies() -> None:
    openers = {"works": opener(works), "sleeps": opener(sleeps)}
    cpu_ms: dict[str, np.ndarray] = {}
    for samples_ms, opened in timed_openings(openers, 10, 20, 5, 1, cpu_ms=cpu_ms):
        for name, values in samples_ms.items():
            assert len(cpu_ms[name]) * 5 == len(values)
            assert len(cpu_ms[name]) % opened == 0


def test_a_call_costs_its_processor_time_and_saves_the_difference() -> None:
    openers = {"baseline-eager": opener(lambda: works(3 * BUSY_S)), "mine": opener(works)}
    found = measure_costs(list(openers), openers, timed(openers), "nothing shows it", 0.1)
    baseline, mine = found["calls"]
    assert baseline["saved_cpu_s"] is None and mine["saved_cpu_s"] is not None
    assert mine["cpu_s"]["low"] <= mine["cpu_s"]["value"] <= mine["cpu_s"]["high"]
    assert mine["cpu_s"]["value"] >= BUSY_S
    assert mine["saved_cpu_s"]["value"] == pytest.approx(baseline["cpu_s"]["value"] - mine["cpu_s"]["value"])
    assert mine["saved_cpu_s"]["low"] > 0
    assert found["energy"] is None and found["energy_unknown"] == "nothing shows it"
    assert mine["joules"] is None and mine["saved_joules"] is None and mine["joules_with_idle"] is None


def test_energy_is_without_what_the_idle_machine_takes() -> None:
    openers = {"baseline-eager": opener(lambda: works(3 * BUSY_S)), "mine": opener(works)}
    found = measure_costs(list(openers), openers, timed(openers), Known(idle=50.0, busy=10.0), 0.02)
    assert found["energy"] is not None and found["energy_unknown"] == ""
    assert found["energy"]["source"] == "a known source"
    assert found["energy"]["idle_watts"]["value"] == pytest.approx(50, rel=0.1)
    baseline, mine = found["calls"]
    assert baseline["joules"] is not None and mine["joules"] is not None and mine["joules_with_idle"] is not None
    assert 0.8 * 10 * BUSY_S < mine["joules"]["value"] < 3 * 10 * BUSY_S
    assert mine["joules_with_idle"] > 3 * mine["joules"]["value"]
    assert mine["saved_joules"] is not None and mine["saved_joules"]["low"] > 0


def test_a_source_that_fails_leaves_energy_unknown_and_all_else_known() -> None:
    openers = {"baseline-eager": opener(works), "mine": opener(works)}
    found = measure_costs(list(openers), openers, timed(openers), Broken(1, 1), 0.01)
    assert found["energy"] is None and found["energy_unknown"] == "the cable is out"
    assert found["calls"][1]["cpu_s"]["value"] > 0


def test_a_meter_that_cannot_be_read_is_a_fault_of_the_config(tmp_path: Path) -> None:
    path = tmp_path / "meter"
    cost = CostOptions.model_validate({"meter": str(path), "meter_unit": "watts"})
    with pytest.raises(ConfigError, match=r"benchmark\.cost\.meter: .* cannot be read .* give the path of a file"):
        energy_source(cost)
    path.write_text("3.5")
    source = energy_source(cost)
    assert not isinstance(source, str) and source.name.startswith("power meter (watts in meter)")


def test_zero_seconds_of_energy_measure_none() -> None:
    found = energy_source(CostOptions.model_validate({"energy_s": 0}))
    assert isinstance(found, str) and "energy_s is 0" in found


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"meter": "/run/meter"}, "give both, or neither"),
        ({"meter_unit": "watts"}, "give both, or neither"),
        ({"meter": "meter", "meter_unit": "watts"}, "write an absolute path"),
        ({"per_kwh": 0.3}, "need a currency"),
        ({"per_cpu_hour": -1, "currency": "EUR"}, "greater than or equal to 0"),
    ],
)
def test_what_disagrees_is_refused(options: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        CostOptions.model_validate(options)


def test_prices_and_meters_are_no_part_of_a_key() -> None:
    plain, priced = (
        BenchmarkConfig.model_validate({"cost": cost})
        for cost in ({}, {"per_cpu_hour": 0.05, "per_kwh": 0.3, "currency": "EUR", "energy_s": 2})
    )
    assert priced.cost.per_kwh == 0.3
    assert plain.model_dump() == priced.model_dump()


def test_what_a_variant_saves_is_over_the_rounds_that_the_baseline_has_too() -> None:
    cpu_ms = {"baseline": np.full(10, 3.0), "variant": np.concatenate([np.full(10, 1.0), np.full(20, 2.0)])}
    samples_ms = {name: np.repeat(values, 5) for name, values in cpu_ms.items()}
    costs = cost_record(["baseline", "variant"], Timings(samples_ms, 30, 0.99, 0.1, cpu_ms), None, "no source")
    row = costs["calls"][1]
    assert row["cpu_s"]["value"] == pytest.approx((10 * 1.0 + 20 * 2.0) / 30 / 1000)
    assert row["saved_cpu_s"]["value"] == pytest.approx(2.0 / 1000)
