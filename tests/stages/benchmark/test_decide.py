"""Decide: budget, winners, nearest miss and waterfall, on figures made for the purpose."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.config import Budget
from edgekit.stages.benchmark.decide import decide, judge

Row = dict[str, Any]


def budget(**limits: Any) -> Budget:
    return Budget.model_validate({"accuracy_drop_pp": 1.0, **limits})


def row(name: str, accuracy: float = 0.98, size: int = 1000) -> Row:
    model, precision, target = name.split("-")
    return {
        "name": name,
        "model": model,
        "precision": precision,
        "target": target,
        "bytes": size,
        "accuracy_validation": accuracy,
        "accuracy_test": accuracy - 0.01,
    }


BASELINE = {**row("baseline-fp32-pytorch", 0.98, 100_000), "name": "baseline-eager"}


def decided(rows: list[Row], p50_ms: dict[str, float], limits: Budget | None = None) -> tuple[Row, Row]:
    latencies = {name: {"p50_ms": value} for name, value in {"baseline-eager": 2.0, **p50_ms}.items()}
    found = decide([BASELINE, *rows], latencies, limits or budget(), ["tflite", "onnx"])
    return found["content"], found["evidence"]


def test_the_fastest_inside_the_budget_wins_its_target() -> None:
    rows = [row("student-fp32-tflite"), row("student-int8-tflite", 0.9), row("student-fp32-onnx")]
    times = {"student-fp32-tflite": 0.02, "student-int8-tflite": 0.01, "student-fp32-onnx": 0.03}
    content, evidence = decided(rows, times)
    assert content["winners"] == {"tflite": "student-fp32-tflite", "onnx": "student-fp32-onnx"}
    assert content["winner"] == "student-fp32-tflite"
    assert evidence["verdict"]["speedup_vs_eager"] == pytest.approx(100)
    assert evidence["nearest_miss"] is None


def test_of_equals_the_smaller_wins() -> None:
    rows = [row("student-fp32-tflite", size=900), row("pruned-fp32-tflite", size=800)]
    content, _ = decided(rows, {"student-fp32-tflite": 0.02, "pruned-fp32-tflite": 0.02})
    assert content["winner"] == "pruned-fp32-tflite"


def test_a_drop_of_exactly_the_budget_is_inside() -> None:
    assert judge(row("a-fp32-onnx", 0.97), {"p50_ms": 1.0}, BASELINE, budget())["inside_budget"]
    assert not judge(row("a-fp32-onnx", 0.9699), {"p50_ms": 1.0}, BASELINE, budget())["inside_budget"]


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({"accuracy_drop_pp": 0.5}, "accuracy drop 1.00 pp is over 0.5 pp"),
        ({"latency_p50_ms": 0.5}, "p50 is over 0.5 ms"),
        ({"size_bytes": 999}, "1,000 bytes are over 999"),
    ],
)
def test_every_broken_limit_is_named(limits: Row, said: str) -> None:
    judged = judge(row("a-fp32-onnx", 0.97), {"p50_ms": 1.0}, BASELINE, budget(**limits))
    assert judged["reasons"] == [said]
    assert not judged["inside_budget"]


def test_nothing_inside_gives_the_nearest_miss() -> None:
    rows = [row("student-fp32-tflite", 0.96), row("pruned-fp32-tflite", 0.5), row("student-fp32-onnx", 0.96)]
    times = {"student-fp32-tflite": 0.02, "pruned-fp32-tflite": 0.01, "student-fp32-onnx": 0.01}
    content, evidence = decided(rows, times)
    assert content["winners"] == {}
    assert content["winner"] is None
    assert evidence["verdict"] == {"met": False}
    assert evidence["nearest_miss"]["name"] == "student-fp32-onnx"


@pytest.mark.parametrize(
    ("limits", "nearest"),
    [({"latency_p50_ms": 0.008}, "student-fp32-tflite"), ({"size_bytes": 500}, "pruned-fp32-tflite")],
)
def test_the_nearest_miss_is_nearest_in_what_is_missed(limits: Row, nearest: str) -> None:
    rows = [
        row("baseline-fp32-tflite", 0.98, 100_000),
        row("student-fp32-tflite", 0.975, 900),
        row("pruned-fp32-tflite", 0.972, 600),
    ]
    times = {"baseline-fp32-tflite": 0.8, "student-fp32-tflite": 0.009, "pruned-fp32-tflite": 0.012}
    _, evidence = decided(rows, times, budget(**limits))
    assert evidence["nearest_miss"]["name"] == nearest


def test_a_target_without_a_winner_is_told_with_its_own_nearest_miss() -> None:
    rows = [row("student-fp32-tflite"), row("student-fp32-onnx", 0.9), row("pruned-fp32-onnx", 0.8)]
    times = {"student-fp32-tflite": 0.02, "student-fp32-onnx": 0.03, "pruned-fp32-onnx": 0.01}
    _, evidence = decided(rows, times)
    assert {target: found["name"] for target, found in evidence["unmet"].items()} == {"onnx": "student-fp32-onnx"}


def test_pruning_channels_is_not_credited_to_a_sparse_winner() -> None:
    rows = [row(f"{model}-fp32-tflite") for model in ("baseline", "student", "pruned", "sparse")]
    times = dict(zip([each["name"] for each in rows], (1.0, 0.1, 0.2, 0.05), strict=True))
    _, evidence = decided(rows, times)
    steps = {step["variant"]: step["kept"] for step in evidence["waterfall"]}
    assert steps["pruned-fp32-tflite"] is False
    assert evidence["waterfall"][-1]["variant"] == "sparse-fp32-tflite"


def test_the_post_training_baseline_is_the_fastest_int8_of_the_original_network() -> None:
    rows = [row("baseline-int8-tflite"), row("baseline-int8-onnx"), row("student-int8-onnx"), row("baseline-fp32-onnx")]
    times = dict(zip([each["name"] for each in rows], (0.3, 0.2, 0.01, 0.1), strict=True))
    content, evidence = decided(rows, times)
    assert content["post_training_baseline"] == "baseline-int8-onnx"
    assert evidence["verdict"]["speedup_vs_post_training_baseline"] == pytest.approx(20)


def test_latencies_stay_out_of_the_content() -> None:
    rows = [row("student-fp32-tflite"), row("student-fp32-onnx")]
    slow, _ = decided(rows, {"student-fp32-tflite": 0.2, "student-fp32-onnx": 0.3})
    fast, _ = decided(rows, {"student-fp32-tflite": 0.1, "student-fp32-onnx": 0.15})
    assert slow == fast


def test_the_waterfall_hatches_what_did_not_pay() -> None:
    rows = [
        row("baseline-fp32-tflite"),
        row("student-fp32-tflite"),
        row("pruned-fp32-tflite"),
        row("pruned-int8-tflite"),
    ]
    times = dict(zip([each["name"] for each in rows], (1.0, 0.1, 0.05, 0.08), strict=True))
    _, evidence = decided(rows, times)
    steps = evidence["waterfall"]
    assert [step["step"] for step in steps] == ["PyTorch eager", "convert", "distill", "prune", "quantize"]
    assert [step["kept"] for step in steps] == [True, True, True, True, False]
    assert steps[-1]["gain"] == pytest.approx(0.05 / 0.08)


def test_the_waterfall_ends_at_a_winner_off_the_beaten_path() -> None:
    rows = [row("baseline-fp32-tflite"), row("student-fp32-tflite"), row("student-fp16-tflite")]
    times = dict(zip([each["name"] for each in rows], (1.0, 0.1, 0.05), strict=True))
    _, evidence = decided(rows, times)
    assert evidence["waterfall"][-1]["variant"] == "student-fp16-tflite"


@given(st.lists(st.tuples(st.floats(0.5, 1.0), st.floats(0.001, 5.0), st.integers(1, 10_000)), min_size=1, max_size=6))
def test_no_winner_is_outside_the_budget_or_slower_than_another_inside(facts: list[tuple[float, float, int]]) -> None:
    rows = [row(f"m{i}-fp32-onnx", accuracy, size) for i, (accuracy, _, size) in enumerate(facts)]
    p50_ms = {f"m{i}-fp32-onnx": value for i, (_, value, _) in enumerate(facts)}
    content, evidence = decided(rows, p50_ms)
    inside = [each["name"] for each in content["variants"][1:] if each["inside_budget"]]
    assert bool(inside) == evidence["verdict"]["met"]
    if inside:
        assert p50_ms[content["winner"]] == min(p50_ms[name] for name in inside)
        product = 1.0
        for step in evidence["waterfall"][1:]:
            product *= step["gain"] if step["kept"] else 1.0
        assert product == pytest.approx(2.0 / p50_ms[content["winner"]])
