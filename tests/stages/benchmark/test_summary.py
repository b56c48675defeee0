"""Account: waterfall, verdict and nearest miss, on figures made for the purpose."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgekit.report.formatting import faster
from tests.stages.benchmark.synthetic import EAGER_MS, Row, budget, decided, row


def test_nothing_inside_gives_the_nearest_miss() -> None:
    rows = [row("student-fp32-tflite", 0.96), row("pruned-fp32-tflite", 0.5), row("student-fp32-onnx", 0.96)]
    times = {"student-fp32-tflite": 0.02, "pruned-fp32-tflite": 0.01, "student-fp32-onnx": 0.01}
    found = decided(rows, times)
    assert found.content["measured"]["winners"] == {}
    assert found.metrics["winner"] is None
    assert found.metrics["verdict"] == {"met": False}
    assert found.metrics["waterfall"] == []
    assert found.metrics["nearest_miss"]["name"] == "student-fp32-onnx"
    assert found.metrics["nearest_miss"]["p50_ms"] == pytest.approx(0.01)


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
    assert decided(rows, times, budget(**limits)).metrics["nearest_miss"]["name"] == nearest


def test_a_target_without_a_winner_is_reported_with_its_own_nearest_miss() -> None:
    rows = [row("student-fp32-tflite"), row("student-fp32-onnx", 0.9), row("pruned-fp32-onnx", 0.8)]
    times = {"student-fp32-tflite": 0.02, "student-fp32-onnx": 0.03, "pruned-fp32-onnx": 0.01}
    unmet = decided(rows, times).metrics["unmet"]
    assert {target: found["name"] for target, found in unmet.items()} == {"onnx": "student-fp32-onnx"}


def test_pruning_channels_is_not_credited_to_a_sparse_winner() -> None:
    rows = [row(f"{model}-fp32-tflite") for model in ("baseline", "student", "pruned", "sparse")]
    times = dict(zip([each["name"] for each in rows], (1.0, 0.1, 0.2, 0.05), strict=True))
    steps = decided(rows, times).metrics["waterfall"]
    assert {step["variant"]: step["kept"] for step in steps}["pruned-fp32-tflite"] is False
    assert steps[-1]["variant"] == "sparse-fp32-tflite"


def test_the_post_training_baseline_is_the_fastest_int8_of_the_original_network() -> None:
    rows = [row("baseline-int8-tflite"), row("baseline-int8-onnx"), row("student-int8-onnx"), row("baseline-fp32-onnx")]
    times = dict(zip([each["name"] for each in rows], (0.3, 0.2, 0.01, 0.1), strict=True))
    metrics = decided(rows, times).metrics
    assert metrics["post_training_baseline"] == "baseline-int8-onnx"
    assert metrics["verdict"]["speedup_vs_post_training_baseline"] == pytest.approx(20)


def test_the_waterfall_hatches_what_did_not_pay() -> None:
    rows = [
        row("baseline-fp32-tflite"),
        row("student-fp32-tflite"),
        row("pruned-fp32-tflite"),
        row("pruned-int8-tflite"),
    ]
    times = dict(zip([each["name"] for each in rows], (1.0, 0.1, 0.05, 0.08), strict=True))
    steps = decided(rows, times).metrics["waterfall"]
    assert [step["step"] for step in steps] == ["PyTorch eager", "convert", "distill", "prune", "quantize"]
    assert [step["kept"] for step in steps] == [True, True, True, True, False]
    assert steps[-1]["gain"] == pytest.approx(0.05 / 0.08)


def test_every_gain_lies_in_its_interval_and_noise_leaves_a_small_one_open() -> None:
    rows = [row("baseline-fp32-tflite"), row("student-fp32-tflite"), row("student-int8-tflite", size=900)]
    times = dict(zip([each["name"] for each in rows], (1.0, 0.1, 0.099), strict=True))
    steps = decided(rows, times, noise=0.03).metrics["waterfall"]
    assert "gain_low" not in steps[0]
    assert all(step["gain_low"] <= step["gain"] <= step["gain_high"] for step in steps[1:])
    verdicts = {step["step"]: faster(step["gain"], step["gain_low"], step["gain_high"]) for step in steps[1:]}
    assert verdicts["quantize"] == "no difference"
    assert verdicts["distill"].endswith(" faster")


def test_a_step_that_was_not_kept_is_compared_with_the_last_that_was() -> None:
    rows = [row(f"{model}-fp32-tflite") for model in ("baseline", "student", "pruned")] + [row("student-int8-tflite")]
    times = dict(zip([each["name"] for each in rows], (1.0, 0.1, 0.4, 0.05), strict=True))
    steps = {step["step"]: step for step in decided(rows, times).metrics["waterfall"]}
    assert (steps["prune"]["kept"], steps["prune"]["gain"]) == (False, pytest.approx(0.25))
    assert (steps["quantize"]["kept"], steps["quantize"]["gain"]) == (True, pytest.approx(2.0))


def test_speed_ups_have_an_interval_against_eager_and_against_post_training_int8() -> None:
    rows = [row("baseline-int8-onnx"), row("student-fp32-onnx")]
    metrics = decided(rows, {"baseline-int8-onnx": 0.2, "student-fp32-onnx": 0.02}, noise=0.02).metrics
    for held, key in ((metrics["verdict"], "speedup_vs_eager"), (metrics["rows"][2], "speedup")):
        assert held[f"{key}_low"] < held[key] < held[f"{key}_high"]
        assert held[key] == pytest.approx(EAGER_MS / 0.02, rel=0.1)
    against = metrics["verdict"]["speedup_vs_post_training_baseline"]
    assert against == pytest.approx(10, rel=0.1)
    assert metrics["verdict"]["speedup_vs_post_training_baseline_low"] < against
    assert (
        decided(rows[1:], {"student-fp32-onnx": 0.02}).metrics["verdict"]["speedup_vs_post_training_baseline"] is None
    )


def test_the_nearest_miss_is_nearest_by_its_bound() -> None:
    rows = [row("student-fp32-onnx", samples=100), row("pruned-fp32-onnx", 0.965)]
    found = decided(rows, {"student-fp32-onnx": 0.02, "pruned-fp32-onnx": 0.03}).metrics["nearest_miss"]
    assert (found["name"], round(found["bound_pp"], 1)) == ("pruned-fp32-onnx", 1.5)


def test_the_waterfall_ends_at_a_winner_off_the_beaten_path() -> None:
    rows = [row("baseline-fp32-tflite"), row("student-fp32-tflite"), row("student-fp16-tflite")]
    times = dict(zip([each["name"] for each in rows], (1.0, 0.1, 0.05), strict=True))
    assert decided(rows, times).metrics["waterfall"][-1]["variant"] == "student-fp16-tflite"


@settings(deadline=None, max_examples=15)
@given(st.lists(st.tuples(st.floats(0.001, 5.0), st.integers(1, 10_000)), min_size=1, max_size=4))
def test_the_gains_of_the_kept_steps_multiply_to_the_speed_up(facts: list[tuple[float, int]]) -> None:
    names = [f"{model}-fp32-onnx" for model in ("baseline", "student", "pruned", "sparse")][: len(facts)]
    rows = [row(name, size=size) for name, (_, size) in zip(names, facts, strict=True)]
    times = {name: value for name, (value, _) in zip(names, facts, strict=True)}
    metrics = decided(rows, times).metrics
    product = 1.0
    for step in metrics["waterfall"][1:]:
        product *= step["gain"] if step["kept"] else 1.0
    assert product == pytest.approx(EAGER_MS / times[metrics["winner"]])
    assert product == pytest.approx(metrics["verdict"]["speedup_vs_eager"])
