"""The diagnosis follows its figures, and the figures add up."""

from __future__ import annotations

import pytest

from edgekit.models.cost import Cost
from edgekit.stages.profile.diagnosis import NEXT_STEPS, diagnose, measure_machine

MACHINE = {"gmacs_per_s": 50.0, "gbytes_per_s": 10.0, "overhead_us_per_operator": 1.0}


def latency(preprocess: float, execute: float, postprocess: float) -> dict[str, dict[str, float]]:
    parts = {"preprocess": preprocess, "execute": execute, "postprocess": postprocess}
    whole = sum(parts.values())
    found = {name: {"mean_ms": value, "share": value / whole} for name, value in parts.items()}
    return {**found, "total": {"p50_ms": whole, "p99_ms": whole, "mean_ms": whole}}


def spent(macs: int = 1000, moved: int = 1000) -> Cost:
    return Cost(1, macs, moved // 2, moved // 2, 1, 1)


def operators(calls: int) -> list[dict[str, float]]:
    return [{"calls": calls}]


@pytest.mark.parametrize(
    ("cause", "parts", "network", "calls"),
    [
        ("preprocess", (5.0, 1.0, 0.1), spent(), 10),
        ("postprocess", (0.1, 1.0, 5.0), spent(), 10),
        ("compute", (0.1, 5.0, 0.1), spent(macs=10**9), 10),
        ("memory traffic", (0.1, 5.0, 0.1), spent(moved=10**9), 10),
        ("call overhead", (0.1, 5.0, 0.1), spent(), 1000),
    ],
)
def test_each_cause_is_named(cause: str, parts: tuple[float, float, float], network: Cost, calls: int) -> None:
    found = diagnose(latency(*parts), operators(calls), network, MACHINE)  # type: ignore[arg-type]
    assert found["cause"] == cause
    assert found["next_step"] == NEXT_STEPS[cause]
    assert cause in found["text"]
    assert sum(found["shares"].values()) == pytest.approx(1)


def test_the_machine_is_measured() -> None:
    machine = measure_machine()
    assert 0.1 < machine["gmacs_per_s"] < 10_000
    assert 0.1 < machine["gbytes_per_s"] < 10_000
    assert 0.01 < machine["overhead_us_per_operator"] < 1000
