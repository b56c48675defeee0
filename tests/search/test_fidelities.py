from __future__ import annotations

from typing import Any

import pytest

from edgekit.core.config import Budget
from edgekit.search.fidelities import (
    EarlyResult,
    NetworkSize,
    UntrainedFile,
    dominated_by,
    limit_violations,
    min_file_bytes,
    reduced_epochs,
    size_excess_bytes,
    size_violation,
)

SIZE = NetworkSize(parameters=10_000, macs=1_000_000, pruned_parameters=4_000, pruned_macs=300_000)


def budget(**limits: Any) -> Budget:
    return Budget.model_validate(limits)


@pytest.mark.parametrize(("epochs", "few"), [(30, 8), (8, 2), (5, 2), (4, 0), (1, 0)])
def test_a_quarter_of_the_epochs_is_rounded_up_and_left_out_where_it_says_nothing(epochs: int, few: int) -> None:
    assert reduced_epochs(epochs) == few


def test_a_network_is_refused_by_its_shape_only_where_no_file_of_it_could_be_small_enough() -> None:
    assert min_file_bytes(SIZE, ["fp32", "int8"]) == 4_000
    assert size_violation(SIZE, ["fp32", "int8"], budget(size_bytes=4_000)) == ""
    assert size_violation(SIZE, ["fp32", "int8"], budget()) == ""
    assert "at least" not in size_violation(SIZE, ["fp32"], budget(size_bytes=15_999)) and size_violation(
        SIZE, ["fp32"], budget(size_bytes=15_999)
    ).startswith("its weights alone need 16,000 bytes")


def test_an_untrained_network_is_over_a_latency_where_the_whole_interval_of_its_fastest_file_is() -> None:
    limits = budget(latency_p50_ms=1.0)
    files = [UntrainedFile("tflite", 9_000, 1.2), UntrainedFile("tflite", 30_000, 0.9)]
    assert limit_violations(files, ["tflite"], limits) == ("", {})
    reason, over = limit_violations(files[:1], ["tflite"], limits)
    assert "at least 1.2 ms" in reason and over == {"latency_p50_ms": pytest.approx(0.2)}


def test_a_fast_file_that_is_too_large_does_not_help() -> None:
    files = [UntrainedFile("tflite", 9_000, 1.2), UntrainedFile("tflite", 30_000, 0.9)]
    reason, over = limit_violations(files, ["tflite"], budget(latency_p50_ms=1.0, size_bytes=10_000))
    assert reason and set(over) == {"latency_p50_ms"}
    reason, over = limit_violations(files, ["tflite"], budget(size_bytes=8_000))
    assert "9,000 bytes" in reason and over == {"size_bytes": 1_000}


def test_a_target_that_takes_no_file_ends_a_trial_without_any_figure() -> None:
    assert limit_violations([UntrainedFile("onnx", 1, 0.1)], ["tflite", "onnx"], budget(size_bytes=5)) == (
        "it could not be converted for tflite",
        {},
    )


def test_a_shape_is_held_to_the_tightest_limit_of_its_targets() -> None:
    limits = budget(size_bytes=9_000, targets={"onnx": {"size": {"ratio": 0.5, "of": "baseline"}}})
    assert size_violation(SIZE, ["int8"], limits, ["tflite", "onnx"], {"onnx": 8_000}) == ""
    reason = size_violation(SIZE, ["int8"], limits, ["tflite", "onnx"], {"onnx": 7_000})
    assert reason == "its weights alone need 4,000 bytes, over 3,500 (0.5 of the float baseline) (budget.size)"
    assert size_excess_bytes(SIZE, ["int8"], limits, ["tflite", "onnx"], {"onnx": 7_000}) == 500
    assert size_excess_bytes(SIZE, ["int8"], limits, ["tflite"], {"onnx": 7_000}) == 0


def test_an_untrained_network_is_held_to_a_ratio_beside_the_reference() -> None:
    limits = budget(latency_p50={"ratio": 0.6, "of": "theirs.tflite"}, targets={"onnx": {"latency_p50_ms": 1.0}})
    files = [
        UntrainedFile("tflite", 9_000, 9.9, {"theirs.tflite": 0.7}),
        UntrainedFile("tflite", 9_000, 9.9, {"theirs.tflite": 0.6}),
    ]
    onnx = UntrainedFile("onnx", 9_000, 0.9)
    assert limit_violations([*files, onnx], ["tflite", "onnx"], limits) == ("", {})
    reason, over = limit_violations([files[0], onnx], ["tflite", "onnx"], limits)
    assert reason == "untrained, its p50 on tflite is at least 0.7 of that of theirs.tflite, over 0.6"
    assert over == {"latency_p50": pytest.approx(0.1)}


def standing(number: int, accuracy: float, parameters: int = 4_000, macs: int = 100, wide: float = 0.01) -> EarlyResult:
    return EarlyResult(number, accuracy, accuracy - wide, accuracy + wide, parameters, macs)


def test_a_trial_is_stopped_only_by_one_that_is_no_larger_and_significantly_better() -> None:
    one = standing(1, 0.80)
    assert dominated_by(one, [standing(2, 0.84)]) == standing(2, 0.84)
    for other in (
        standing(2, 0.825),  # within the margin, although the intervals are apart
        standing(2, 0.84, wide=0.04),  # few samples: its interval reaches into that of the one
        standing(2, 0.99, parameters=4_001),
        standing(2, 0.99, macs=101),
        standing(1, 0.99),  # itself, in an earlier study
    ):
        assert dominated_by(one, [one, other]) is None


def test_of_several_that_would_stop_it_the_most_accurate_is_named_whatever_their_order() -> None:
    others = [standing(3, 0.9), standing(2, 0.9), standing(4, 0.85)]
    for order in (others, others[::-1]):
        assert dominated_by(standing(1, 0.5), order) == standing(2, 0.9)
