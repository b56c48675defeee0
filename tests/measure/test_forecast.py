"""Forecasts: Amdahl's law, the machine's ceilings, predicted and measured speed-ups, and the advice to stop."""

from __future__ import annotations

import pytest

from edgekit.measure.forecast import (
    Execution,
    amdahl_speedup,
    compare_with_measured,
    early_stop_advice,
    estimate_execution,
    runtime_forecasts,
)

MACHINE = {"gmacs_per_s": 10.0, "int8_gmacs_per_s": 40.0, "gbytes_per_s": 5.0}
COSTS = {"macs": 10_000_000, "moved": 5_000_000}


def test_what_is_not_touched_stays() -> None:
    assert amdahl_speedup(0.5, 1e9) == pytest.approx(2.0)
    assert amdahl_speedup(0.9, 10) == pytest.approx(1 / 0.19)
    assert amdahl_speedup(0.0, 10) == 1.0


def test_the_fixed_part_of_a_call_stays_in_int8() -> None:
    bare = estimate_execution(2.0, COSTS, MACHINE)
    assert (bare.compute_ms, bare.memory_ms, bare.fixed_ms) == pytest.approx((1.0, 1.0, 0.0))
    assert bare.speedup(int8=True) == pytest.approx(2.0 / (0.25 + 0.25))
    heavy = estimate_execution(4.0, COSTS, MACHINE)
    assert heavy.fixed_ms == pytest.approx(2.0)
    assert heavy.speedup(int8=True) == pytest.approx(4.0 / 2.5)
    assert heavy.speedup(macs_share=0.5, bytes_share=0.5) == pytest.approx(4.0 / 3.0)


def test_a_call_faster_than_the_ceilings_has_nothing_fixed() -> None:
    """A ceiling is measured too: caches may give more than the bandwidth that was found."""
    result = estimate_execution(1.0, COSTS, MACHINE)
    assert result.fixed_ms == 0.0
    assert result.speedup(macs_share=0.5, bytes_share=0.5) == pytest.approx(2.0)


def row(name: str, model: str, precision: str, target: str, speedup: float) -> dict[str, object]:
    ends = {"speedup": speedup, "speedup_low": 0.9 * speedup, "speedup_high": 1.1 * speedup}
    return {"name": name, "model": model, "precision": precision, "target": target, **ends}


def test_predicted_stands_beside_achieved() -> None:
    ways = [{"way": "LiteRT", "p50_ms": 4.0, "ratio": 3.0}, {"way": "PyTorch eager", "p50_ms": 12.0, "ratio": 1.0}]
    profile = {"forecast": {"executions": runtime_forecasts(ways, COSTS, MACHINE)}}
    variants = [
        row("baseline-int8-tflite", "baseline", "int8", "tflite", 4.8),
        row("student-fp32-tflite", "student", "fp32", "tflite", 2.0),
        row("student-w8-tflite", "student", "w8", "tflite", 2.0),
        row("student-int8-onnx", "student", "int8", "onnx", 2.0),
    ]
    half = {"macs": COSTS["macs"] / 2, "moved": COSTS["moved"] / 2}
    result = {
        one["name"]: one for one in compare_with_measured(profile, variants, {"baseline": COSTS, "student": half})
    }
    assert set(result) == {"baseline-int8-tflite", "student-fp32-tflite"}, "no forecast for w8, nor where nothing ran"
    assert result["baseline-int8-tflite"]["predicted"] == pytest.approx(3.0 * 4.0 / 2.5)
    assert result["baseline-int8-tflite"]["share"] == pytest.approx(1.0)
    assert result["student-fp32-tflite"]["share"] == pytest.approx(2.0 / (3.0 * 4.0 / 3.0))


def test_a_baseline_without_counted_multiply_adds_is_predicted_by_its_bytes() -> None:
    """Torch counts none of a recurrent layer."""
    costs = {"macs": 0, "moved": 5_000_000}
    profile = {
        "forecast": {"executions": runtime_forecasts([{"way": "LiteRT", "p50_ms": 4.0, "ratio": 3.0}], costs, MACHINE)}
    }
    variants = [row("student-fp32-tflite", "student", "fp32", "tflite", 3.4)]
    half = {"macs": 0, "moved": 2_500_000}
    (result,) = compare_with_measured(profile, variants, {"baseline": costs, "student": half})
    assert result["predicted"] == pytest.approx(3.0 * 4.0 / 3.5)


def test_a_profile_that_predicted_nothing_gives_no_rows() -> None:
    assert (
        compare_with_measured({}, [row("baseline-fp32-onnx", "baseline", "fp32", "onnx", 2.0)], {"baseline": COSTS})
        == []
    )


WAYS = [
    {"way": "PyTorch eager", "p50_ms": 2.0, "high_ms": 2.2, "bytes": None},
    {"way": "LiteRT", "p50_ms": 0.5, "high_ms": 0.9, "bytes": 400_000},
    {"way": "OpenVINO", "p50_ms": 0.7, "high_ms": 0.75, "bytes": 500_000},
    {"way": "torch.compile", "p50_ms": 0.1, "high_ms": 0.1, "bytes": None},
    {"way": "ONNX Runtime", "p50_ms": 0.2, "high_ms": 0.2, "bytes": 200_000},  # of no target of this run
    {"way": "TorchScript", "reason": "no trace"},
]


@pytest.mark.parametrize(
    ("latency_ms", "size", "named"),
    [
        (1.0, None, "LiteRT"),
        (0.8, None, "OpenVINO"),  # the upper end of LiteRT's interval is above it
        (3.0, 450_000, "LiteRT"),
        (None, 300_000, "PyTorch eager"),
        (0.4, None, None),
        (None, None, None),
    ],
)
def test_the_advice_to_stop_names_a_runtime_inside_the_budget(
    latency_ms: float | None, size: int | None, named: str | None
) -> None:
    text = early_stop_advice(WAYS, ["tflite", "openvino"], 200_000, latency_ms, size)
    assert (text is None) == (named is None)
    assert named is None or (text and text.startswith(f"Stop here: {named} "))


def test_speed_is_a_ratio_of_the_same_call() -> None:
    assert Execution(1.0, 0.5, 0.1, 0.5).speedup() == 1.0
