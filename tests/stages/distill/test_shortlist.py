"""The choice by the clock, on made-up times: who is within the budget, who is trained, and why the others are not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from edgekit.core.artifacts import Artifact
from edgekit.core.config import Budget
from edgekit.core.errors import ConversionError, StageError
from edgekit.measure.latency import FailedFile, TimedFile, TimingResult
from edgekit.models.store import ModelSpec
from edgekit.report.sections import distillation
from edgekit.stages.distill import DistillConfig
from edgekit.stages.distill.selection import most_accurate, selection_metrics
from edgekit.stages.distill.shortlist import (
    CandidateNetwork,
    Shortlist,
    check_recorded_choice,
    choose_candidates,
    fastest_file,
    reason_not_trained,
    targets_without_file,
)


def budget(**limits: Any) -> Budget:
    return Budget.model_validate(limits)


def file(target: str, p50_ms: float, size: int = 1000, precision: str = "fp32", spread: float = 0.1) -> TimedFile:
    """Its interval reaches `sure` of the p50 to both sides."""
    low_ms, high_ms = p50_ms * (1 - spread), p50_ms * (1 + spread)
    return TimedFile("any", target, precision, size, size, p50_ms, low_ms, high_ms, (p50_ms,) * 10)


FILES = {
    "slow": [file("tflite", 3.0), file("onnx", 4.0)],
    "quick": [file("tflite", 1.0, 4000), file("onnx", 5.0, 500)],
    "middling": [file("tflite", 9.0), file("onnx", 2.0)],
}


def chosen(most: int = 3, **limits: Any) -> tuple[list[str], list[str]]:
    found = choose_candidates(FILES, budget(**limits), most)
    return found["in_time"], found["trained"]


def test_without_a_limit_all_are_within_and_the_fastest_are_trained_in_the_configs_order() -> None:
    assert chosen() == (list(FILES), list(FILES))
    assert chosen(most=2) == (list(FILES), ["quick", "middling"])
    assert chosen(most=1)[1] == ["quick"]


def test_the_best_target_decides() -> None:
    assert chosen(latency_p50_ms=2.5)[0] == ["quick", "middling"]
    assert chosen(latency_p50_ms=1.5)[0] == ["quick"]


def test_what_no_target_takes_is_never_trained_and_a_record_that_names_it_is_refused() -> None:
    files: dict[str, list[TimedFile]] = {**FILES, "odd": []}
    limits = budget(latency_p50_ms=3.5)
    measured = choose_candidates(files, limits, 3)
    assert "odd" not in measured["in_time"] and measured["in_time"] == choose_candidates(FILES, limits, 3)["in_time"]
    assert reason_not_trained("odd", files, measured, limits, 3) == "it cannot be converted for any target"
    with pytest.raises(StageError, match="odd could not be converted for any target here"):
        check_recorded_choice({"in_time": ["odd"], "trained": ["odd"]}, files, limits)


NARROW = {
    "narrow": [file("onnx", 0.5)],
    "broad": [file("onnx", 3.0), file("tflite", 4.0)],
    "broader": [file("onnx", 5.0), file("tflite", 2.0, precision="int8")],
}


def test_one_that_a_target_cannot_take_is_not_trained_where_others_have_a_file_for_each() -> None:
    limits = budget(latency_p50_ms=9.0)
    for most, trained in ((3, ["broad", "broader"]), (1, ["broader"]), (0, ["broad", "broader"])):
        measured = choose_candidates(NARROW, limits, most)
        assert measured == {"in_time": list(NARROW), "trained": trained}
        assert (
            reason_not_trained("narrow", NARROW, measured, limits, most)
            == "no file for tflite, although other candidates have one"
        )
    assert targets_without_file(NARROW["broad"], ["onnx", "tflite"]) == []


def test_where_all_that_are_within_the_budget_lack_a_target_the_least_lacking_are_trained() -> None:
    limits = budget(latency_p50_ms=1.0)
    assert choose_candidates(NARROW, limits, 3) == {"in_time": ["narrow"], "trained": ["narrow"]}
    assert reason_not_trained("narrow", NARROW, choose_candidates(NARROW, limits, 3), limits, 3) == ""
    assert targets_without_file(NARROW["narrow"], ["tflite", "onnx"]) == ["tflite"]
    two_of_three = {**NARROW, "two": [file("onnx", 0.9), file("openvino", 0.9)]}
    assert choose_candidates(two_of_three, limits, 3)["trained"] == ["two"]


def test_a_target_without_a_student_is_reported() -> None:
    measured = {"in_time": ["narrow"], "trained": ["narrow"]}
    found = Shortlist([], NARROW, {title: [] for title in NARROW}, measured, measured, replayed=False)
    config = DistillConfig.model_construct(budget=budget(), targets=["onnx", "tflite"])
    for kept, missing in (("narrow", ["tflite"]), ("broad", [])):
        row = {"name": kept, "kept": True, "parameters": 1, "macs": 1, "bytes": {}, "validation_accuracy": None}
        metrics: dict[str, Any] = selection_metrics(found, [row], config)
        assert metrics["shortlist"]["no_student_for"] == missing
        title = distillation.candidates_table(cast("Artifact", SimpleNamespace(metrics=metrics))).title
        assert ("no student for tflite: the chosen one has no file for it" in str(title)) == bool(missing)


def test_a_recorded_choice_of_one_that_a_target_cannot_take_is_followed() -> None:
    limits, recorded = budget(), {"in_time": list(NARROW), "trained": ["narrow"]}
    check_recorded_choice(recorded, NARROW, limits)
    assert reason_not_trained("broad", NARROW, recorded, limits, 1) == "within the budget, but not among the 1 fastest"


def test_only_a_latency_that_is_significantly_over_the_limit_is_refused() -> None:
    limit = budget(latency_p50_ms=1.0)
    noisy = {"a": [file("onnx", 1.05, spread=0.1)]}
    precise = {"a": [file("onnx", 1.05, spread=0.01)]}
    assert choose_candidates(noisy, limit, 3)["in_time"] == ["a"]
    assert choose_candidates(precise, limit, 3) == {"in_time": [], "trained": []}


def test_one_file_must_meet_both_limits() -> None:
    """The quick one is either fast or small, never both."""
    assert chosen(latency_p50_ms=2.5, size_bytes=2000)[0] == ["middling"]
    assert fastest_file(FILES["quick"], budget(size_bytes=2000)).target == "onnx"


def test_what_is_too_large_everywhere_is_out_with_its_smallest_file() -> None:
    limits = budget(size_bytes=600)
    measured = choose_candidates(FILES, limits, 3)
    assert measured["in_time"] == ["quick"]
    assert reason_not_trained("slow", FILES, measured, limits, 3) == "its smallest file, 1,000 bytes, is over 600"


def test_each_refusal_has_its_reason_and_no_figure_of_the_clock() -> None:
    limits = budget(latency_p50_ms=3.5)
    measured = {"in_time": ["quick", "middling"], "trained": ["quick"]}
    reasons = {title: reason_not_trained(title, FILES, measured, limits, 1) for title in FILES}
    assert reasons == {
        "slow": "p50 is over 3.5 ms on every target",
        "quick": "",
        "middling": "within the budget, but not among the 1 fastest",
    }


@pytest.mark.parametrize(
    ("in_time", "trained", "message"),
    [
        (["nobody"], ["quick"], "names candidate 'nobody', but the candidates are slow, quick, middling"),
        (["quick"], [["quick"]], "names candidate \\['quick'\\]"),
        (["quick"], ["slow", "quick"], "slow has no file of 600 bytes or less"),
        (["quick"], [], "contradicts itself: it trains no candidate"),
        (["slow"], [], "slow has no file of 600 bytes or less"),
    ],
)
def test_an_impossible_record_is_refused(in_time: list[Any], trained: list[Any], message: str) -> None:
    with pytest.raises(StageError, match=message):
        check_recorded_choice({"in_time": in_time, "trained": trained}, FILES, budget(size_bytes=600))


def test_a_record_that_trains_what_it_calls_too_slow_is_refused() -> None:
    with pytest.raises(StageError, match="contradicts itself: it trains slow"):
        check_recorded_choice({"in_time": ["quick"], "trained": ["quick", "slow"]}, FILES, budget())


def entry(title: str, macs: int) -> CandidateNetwork:
    shape = {"kind": "image", "shape": [8, 8, 1], "dtype": "uint8", "range": [0, 255]}
    spec = ModelSpec(builder="a.b:c", input_shape=(1, 8, 8), num_classes=2, classes=("0", "1"), raw=shape)
    return CandidateNetwork(title, spec, macs, macs)


@pytest.mark.parametrize(
    ("accuracy", "selected"),
    [
        ({"large": 0.9, "small": 0.8, "twin": 0.8}, "large"),
        ({"large": 0.9, "small": 0.9, "twin": 0.7}, "small"),
        ({"large": 0.7, "twin": 0.9, "small": 0.9}, "small"),
        ({"twin": 0.5}, "twin"),
    ],
)
def test_the_most_accurate_is_kept_then_the_fewest_macs_then_the_first(
    accuracy: dict[str, float], selected: str
) -> None:
    found = most_accurate([entry("large", 9), entry("small", 2), entry("twin", 2)], accuracy)
    assert found is not None and found.title == selected


def test_nobody_trained_is_nobody_kept() -> None:
    assert most_accurate([entry("large", 9)], {}) is None


def test_the_times_of_a_stopped_attempt_are_used_again_and_only_under_their_key(tmp_path: Path) -> None:
    from edgekit.stages.distill.shortlist import _read_times, _store_times

    found = {title: TimingResult(files, [FailedFile(title, "onnx", "int8", "no")]) for title, files in FILES.items()}
    _store_times(tmp_path / "a/b.json", "key", found)
    assert _read_times(tmp_path / "a/b.json", "key") == found
    assert _read_times(tmp_path / "a/b.json", "other") is None
    (tmp_path / "a/b.json").write_text("torn")
    assert _read_times(tmp_path / "a/b.json", "key") is None


def reference(p50_ms: float, model: str = "theirs.tflite", target: str = "tflite", size: int = 1000) -> TimedFile:
    return replace(file(target, p50_ms, size), model=model)


def test_a_limit_beside_a_reference_is_held_round_by_round() -> None:
    """Both twice as slow in half of the rounds is no difference; both intervals alone would touch."""
    pace = np.repeat([1.0, 2.0], 5)
    own, theirs = (replace(file("tflite", 1.0), round_p50s_ms=tuple(p50 * pace)) for p50 in (0.7, 1.0))
    beside = [replace(theirs, model="theirs.tflite")]
    for ratio, met in ((0.7001, ["own"]), (0.6999, [])):
        limits = budget(latency_p50={"ratio": ratio, "of": "theirs.tflite"})
        assert choose_candidates({"own": [own]}, limits, 0, beside)["in_time"] == met
    reason = reason_not_trained("own", {"own": [own]}, {"in_time": [], "trained": []}, limits, 0, beside)
    assert reason == "p50 is over 0.6999 of theirs.tflite's p50 on every target"


def test_each_file_is_held_to_the_limits_of_its_target() -> None:
    own = {"onnx": {"latency_p50": {"ratio": 0.5, "of": "baseline"}, "size": {"ratio": 0.6, "of": "baseline"}}}
    limits = budget(latency_p50_ms=1.5, targets=own)
    beside = [reference(9.0, "baseline", "onnx"), reference(1.0, "baseline", "tflite")]
    assert choose_candidates(FILES, limits, 0, beside)["in_time"] == ["quick"], (
        "its onnx file is over half, its tflite in time"
    )
    assert choose_candidates({"quick": FILES["quick"][1:]}, limits, 0, beside)["in_time"] == []
    assert choose_candidates({"quick": FILES["quick"][1:]}, limits, 0, [reference(10.5, "baseline", "onnx")])[
        "in_time"
    ] == ["quick"]
    none = {"in_time": list[str](), "trained": list[str]()}
    assert reason_not_trained("slow", {"slow": FILES["slow"][1:]}, none, limits, 0, beside) == (
        "its smallest file, 1,000 bytes, is over 600 (0.6 of the float baseline)"
    )
    assert reason_not_trained("slow", FILES, none, limits, 0, beside) == (
        "p50 of every file that is small enough is over 1.5 ms (tflite), 0.5 of the float baseline's p50 (onnx) on "
        "every target"
    )


def test_a_baseline_without_a_float_file_for_a_target_is_named() -> None:
    limits = budget(latency_p50={"ratio": 0.5, "of": "baseline"})
    with pytest.raises(
        ConversionError, match="a limit of onnx is relative to baseline, which could not be timed there"
    ):
        choose_candidates(FILES, limits, 0, [reference(9.0, "baseline", "tflite")])
