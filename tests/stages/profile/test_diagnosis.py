"""The diagnosis follows its figures: every bound is named for what causes it, and steps are ranked by their gain."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from torch import nn

from edgekit.data import Data, Split
from edgekit.models.cost import Cost
from edgekit.stages.profile.diagnosis import MAX_STEPS, MIN_SPEEDUP, ProfileMeasurements, diagnose
from edgekit.stages.profile.measure import operator_table
from edgekit.stages.profile.roofline import measure_machine

MACHINE = {"gmacs_per_s": 50.0, "int8_gmacs_per_s": 200.0, "gbytes_per_s": 10.0, "overhead_us_per_operator": 1.0}
PARTS = {"queue": 0.02, "preprocess": 0.1, "execute": 5.0, "postprocess": 0.02, "serialise": 0.05}
SMALL = Cost(1, 1000, 500, 500, 1, 1)
LARGE = replace(SMALL, macs=40_000_000)
CALLED = [{"calls": 30, "dispatched": 10}]
SAMPLE = Split(np.zeros((1, 8, 8, 1), np.uint8), np.zeros(1, np.int64))
ONE_CORE = {"threads": 1, "speedup": 1.0, "speedup_low": 1.0, "speedup_high": 1.0}


def latency(parts: dict[str, float]) -> dict[str, dict[str, float]]:
    whole = sum(parts.values())
    found = {name: {"mean_ms": value, "p50_ms": value, "share": value / whole} for name, value in parts.items()}
    return {**found, "total": {"p50_ms": whole, "p99_ms": whole, "mean_ms": whole}}


def layer(name: str, ms: float, bound: str | None, macs: int, least_ms: float) -> dict[str, object]:
    return {"layer": name, "ms": ms, "bound": bound, "macs": macs, "least_ms": least_ms}


def layers(**ms: float) -> list[dict[str, object]]:
    """A convolution, a dense layer, an activation, and what is outside of them."""
    took = {"conv": 1.0, "head": 1.0, "relu": 0.5, "outside": 0.5, **ms}
    return [
        layer("conv", took["conv"], "compute", 1000, 0.4),
        layer("head", took["head"], "memory", 10, 0.2),
        layer("relu", took["relu"], "memory", 0, 0.1),
        layer("outside layers", took["outside"], None, 0, 0.0),
    ]


def measured(**other: object) -> ProfileMeasurements:
    cold = {"start Python": 100.0, "import": 1000.0, "load": 50.0, "warm-up": 10.0}
    ways = [
        {"way": "PyTorch eager", "p50_ms": 5.0, "ratio": 1.0},
        {"way": "LiteRT", "p50_ms": 1.0, "ratio": 5.0},
        {"way": "torch.compile", "reason": "left out"},
    ]
    found = ProfileMeasurements(
        latency(PARTS), {"parts_ms": cold}, CALLED, ways, ONE_CORE, MACHINE, layers(), SMALL, 100_000
    )
    return replace(found, **other)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("bound", "other"),
    [
        ("compute", {"layers": layers(conv=3.0)}),
        ("memory", {"layers": layers(head=3.0)}),
        ("call overhead", {"layers": layers(outside=3.0)}),
        ("call overhead", {"layers": layers(relu=3.0)}),
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


def test_execute_is_shared_out_as_it_was_measured() -> None:
    """A network is not bound by calls because its calls have a least time, where its convolutions take the time."""
    many = [{"calls": 30_000, "dispatched": 10_000}]
    found = diagnose(measured(layers=layers(conv=6.0), operators=many))
    assert found["bound"] == "compute-bound"
    inside = {name: found["shares"][name] for name in ("compute", "memory", "call overhead")}
    assert inside["compute"] / sum(inside.values()) == pytest.approx(6.0 / 8.0)
    assert inside["memory"] / sum(inside.values()) == pytest.approx((1.0 + 0.1) / 8.0), "an activation has its bytes"
    assert inside["call overhead"] / sum(inside.values()) == pytest.approx((0.4 + 0.5) / 8.0)
    assert (
        "75% is under the flat part of the roofline (arithmetic), 14% under its slope (bytes), 11% is" in found["text"]
    )
    assert "reach 9% of their roofline: most of their time is not arithmetic" in found["text"]


def test_arithmetic_outside_layers_has_no_more_than_it_needs() -> None:
    loose = [layer("outside layers", 4.0, None, 1000, 1.0)]
    found = diagnose(measured(layers=loose))
    assert found["shares"]["call overhead"] == pytest.approx(3 * found["shares"]["compute"])
    assert "100% of the multiply-adds are done where PyTorch sees no layer" in found["text"]
    assert "of their roof" not in found["text"]


def test_an_operator_within_another_is_no_call_of_the_network() -> None:
    module = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(2 * 36, 3)).eval()
    data = Data(SAMPLE, SAMPLE, SAMPLE, ("a", "b", "c"), "image", "")
    rows = operator_table(module, data, [{"step": "scale", "factor": 1.0}], 4)
    assert {row["operator"]: row["dispatched"] for row in rows if row["dispatched"]} == {
        "conv2d": 1,
        "relu": 1,
        "flatten": 1,
        "linear": 1,
    }
    assert sum(row["calls"] for row in rows) > 4, "what these call has rows too"
    floor_ms = diagnose(measured(operators=rows))["floors_ms"]["call overhead"]
    assert floor_ms == pytest.approx(4 * MACHINE["overhead_us_per_operator"] / 1e3)


def test_threads_that_bring_little_are_no_bound() -> None:
    little = {"threads": 4, "speedup": 1.2, "speedup_low": 1.1, "speedup_high": 1.3}
    found = diagnose(measured(layers=layers(conv=3.0), threads=little))
    assert found["bound"] == "compute-bound"


def test_steps_are_ranked_and_few_and_worth_taking() -> None:
    found = diagnose(measured(cost=LARGE, layers=layers(conv=4.0)))
    steps = found["steps"]
    assert found["bound"] == "compute-bound"
    gains = [step["speedup"] for step in steps]
    assert gains == sorted(gains, reverse=True)
    assert 1 < len(steps) <= MAX_STEPS
    assert min(gains) >= MIN_SPEEDUP
    assert "int8 on LiteRT" in steps[0]["title"], "arithmetic that int8 does four times as fast gains most"


@pytest.mark.parametrize(
    ("bound", "first", "other"),
    [
        ("call overhead", "run it unmodified on LiteRT", {"layers": layers(relu=3.0), "cost": LARGE}),
        ("thread", "use 4 threads", {"threads": {**ONE_CORE, "threads": 4, "speedup": 1.5, "speedup_low": 1.4}}),
        ("cold start", "keep one process running", {"calls_per_start": 320}),
    ],
)
def test_the_first_step_is_against_the_bound(bound: str, first: str, other: dict[str, object]) -> None:
    """Although another one is predicted to buy more: int8 gains nothing from calls of operators."""
    found = diagnose(measured(**other))
    assert found["bound"] == f"{bound}-bound"
    assert found["steps"][0]["title"].startswith(first)
    assert bound in found["steps"][0]["against"]
    assert found["steps"][0]["speedup"] < max(step["speedup"] for step in found["steps"])


def test_an_expensive_preprocess_comes_first() -> None:
    steps = diagnose(measured(latency=latency({**PARTS, "preprocess": 100.0})))["steps"]
    assert "preprocess" in steps[0]["title"]
    assert all("LiteRT" not in step["title"] for step in steps), "nothing there is worth taking while this stands"


def test_no_runtime_no_promise_of_one() -> None:
    found = diagnose(measured(runtimes=[{"way": "PyTorch eager", "p50_ms": 5.0, "ratio": 1.0}]))
    assert all("int8" not in step["title"] for step in found["steps"])


def test_the_machine_is_measured() -> None:
    machine = measure_machine()
    assert 0.1 < machine["gmacs_per_s"] < 10_000
    assert 0.1 < machine["int8_gmacs_per_s"] < 100_000
    assert 0.1 < machine["gbytes_per_s"] < 10_000
    assert 0.01 < machine["overhead_us_per_operator"] < 1000
