"""The diagnosis follows its figures: every bound is named for what causes it, and steps are ranked by their gain."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edgekit.models.cost import Cost
from edgekit.stages.profile.ceilings import measure_machine
from edgekit.stages.profile.diagnosis import MOST_STEPS, WORTH_IT, Measured, diagnose

MACHINE = {"gmacs_per_s": 50.0, "int8_gmacs_per_s": 200.0, "gbytes_per_s": 10.0, "overhead_us_per_operator": 1.0}
PARTS = {"queue": 0.02, "preprocess": 0.1, "execute": 5.0, "postprocess": 0.02, "serialise": 0.05}
SMALL = Cost(1, 1000, 500, 500, 1, 1)
ONE_CORE = {"threads": 1, "speedup": 1.0, "speedup_low": 1.0, "speedup_high": 1.0}


def latency(parts: dict[str, float]) -> dict[str, dict[str, float]]:
    whole = sum(parts.values())
    found = {name: {"mean_ms": value, "p50_ms": value, "share": value / whole} for name, value in parts.items()}
    return {**found, "total": {"p50_ms": whole, "p99_ms": whole, "mean_ms": whole}}


def measured(**other: object) -> Measured:
    cold = {"start Python": 100.0, "import": 1000.0, "load": 50.0, "warm-up": 10.0}
    ways = [
        {"way": "PyTorch eager", "p50_ms": 5.0, "ratio": 1.0},
        {"way": "LiteRT", "p50_ms": 1.0, "ratio": 5.0},
        {"way": "torch.compile", "reason": "left out"},
    ]
    found = Measured(latency(PARTS), {"parts_ms": cold}, [{"calls": 10}], ways, ONE_CORE, MACHINE, SMALL, 100_000)
    return replace(found, **other)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("bound", "other"),
    [
        ("compute", {"cost": replace(SMALL, macs=10**9)}),
        ("memory", {"cost": replace(SMALL, weight_bytes=10**9)}),
        ("call overhead", {"operators": [{"calls": 1000}]}),
        ("preprocess", {"latency": latency({**PARTS, "preprocess": 20.0})}),
        ("serialisation", {"latency": latency({**PARTS, "serialise": 20.0})}),
        ("cold start", {"calls_per_start": 10}),
        ("thread", {"threads": {"threads": 4, "speedup": 2.5, "speedup_low": 2.1, "speedup_high": 2.9}}),
    ],
)
def test_each_bound_is_named(bound: str, other: dict[str, object]) -> None:
    found = diagnose(measured(**other))
    assert found["bound"] == f"{bound}-bound"
    assert f"{bound}-bound" in found["text"]
    assert sum(found["shares"].values()) == pytest.approx(1)


def test_threads_that_bring_little_are_no_bound() -> None:
    little = {"threads": 4, "speedup": 1.2, "speedup_low": 1.1, "speedup_high": 1.3}
    found = diagnose(measured(cost=replace(SMALL, macs=10**9), threads=little))
    assert found["bound"] == "compute-bound"


def test_steps_are_ranked_and_few_and_worth_taking() -> None:
    steps = diagnose(measured(cost=replace(SMALL, macs=40_000_000)))["steps"]
    gains = [step["speedup"] for step in steps]
    assert gains == sorted(gains, reverse=True)
    assert 1 < len(steps) <= MOST_STEPS
    assert min(gains) >= WORTH_IT
    assert "int8 on LiteRT" in steps[0]["title"], "arithmetic that int8 does four times as fast gains most"


def test_an_expensive_preprocess_comes_first() -> None:
    steps = diagnose(measured(latency=latency({**PARTS, "preprocess": 100.0})))["steps"]
    assert "preprocess" in steps[0]["title"]
    assert all("LiteRT" not in step["title"] for step in steps), "nothing there is worth taking while this stands"


def test_no_runtime_no_promise_of_one() -> None:
    found = diagnose(measured(ways=[{"way": "PyTorch eager", "p50_ms": 5.0, "ratio": 1.0}]))
    assert all("int8" not in step["title"] for step in found["steps"])


def test_the_machine_is_measured() -> None:
    machine = measure_machine()
    assert 0.1 < machine["gmacs_per_s"] < 10_000
    assert 0.1 < machine["int8_gmacs_per_s"] < 100_000
    assert 0.1 < machine["gbytes_per_s"] < 10_000
    assert 0.01 < machine["overhead_us_per_operator"] < 1000
