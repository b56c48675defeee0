"""Replayed: recorded decisions are followed, today's are reported beside them, and impossible ones are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgekit.core import replay as replay_file
from edgekit.core.errors import StageError, TrustError
from edgekit.stages.benchmark.decision import Decision
from tests.stages.benchmark.synthetic import Row, budget, decided, decision_named, row

ROWS = [row("student-fp32-tflite"), row("pruned-fp32-tflite", size=900), row("student-int8-tflite", 0.9)]
TIMES = {"student-fp32-tflite": 0.02, "pruned-fp32-tflite": 0.03, "student-int8-tflite": 0.01}


def replay(winners: Row, too_slow: Any = (), buys_nothing: Any = (), **limits: Any) -> Decision:
    recorded = {"winners": winners, "too_slow": list(too_slow), "buys_nothing": list(buys_nothing)}
    return decided(ROWS, TIMES, budget(**limits), recorded)


def test_a_recorded_winner_wins_and_todays_is_reported() -> None:
    found = replay({"tflite": "pruned-fp32-tflite"})
    assert found.content["measured"] == {
        "winners": {"tflite": "pruned-fp32-tflite"},
        "too_slow": [],
        "buys_nothing": [],
    }
    decision = decision_named(found, "winner of tflite")
    assert (decision["chosen"], decision["today"]) == ("pruned-fp32-tflite", "student-fp32-tflite")
    assert (decision["rule"], decision["replayed"]) == ("recorded", True)
    assert found.metrics["winners"] == {"tflite": "pruned-fp32-tflite"}
    assert found.metrics["verdict"]["winner"] == "pruned-fp32-tflite"
    assert found.metrics["waterfall"][-1]["variant"] == "pruned-fp32-tflite"


def test_the_evidence_of_a_replay_is_todays() -> None:
    free = decided(ROWS, TIMES)
    found = replay({"tflite": "pruned-fp32-tflite"})
    for each in ("winner of tflite", "winner of onnx"):
        assert decision_named(found, each)["candidates"] == decision_named(free, each)["candidates"]
        assert decision_named(found, each)["today"] == decision_named(free, each)["chosen"]


def test_a_free_run_is_its_own_today() -> None:
    for decision in decided(ROWS, TIMES, budget(latency_p50_ms=0.025)).decisions:
        assert not decision["replayed"]
        assert decision["today"] == decision["chosen"]


def test_replaying_what_was_decided_leaves_the_same_content() -> None:
    limits = budget(latency_p50_ms=0.025)
    free = decided(ROWS, TIMES, limits)
    other_day = {**TIMES, "student-fp32-tflite": 0.09, "pruned-fp32-tflite": 0.01}
    again = decided(ROWS, other_day, limits, free.content["measured"])
    assert again.content == free.content
    slow = decision_named(again, "too slow for 0.025 ms")
    assert (slow["chosen"], slow["today"]) == (["pruned-fp32-tflite"], ["student-fp32-tflite"])


def test_what_was_recorded_as_too_slow_stays_out() -> None:
    found = replay({"tflite": "student-fp32-tflite"}, ["pruned-fp32-tflite"], latency_p50_ms=0.5)
    shown = {each["name"]: each for each in found.metrics["rows"]}["pruned-fp32-tflite"]
    assert shown["reasons"] == ["p50 is over 0.5 ms, as recorded"]
    assert not shown["inside_budget"]


@pytest.mark.parametrize("missing", replay_file.DECISION_FIELDS["benchmark"])
def test_a_record_without_one_of_its_parts_is_refused(missing: str, tmp_path: Path) -> None:
    whole = {name: kind() for name, kind in replay_file.DECISION_FIELDS["benchmark"].items()}
    replay_file.write(tmp_path, {"benchmark": whole})
    assert replay_file.read(tmp_path, "benchmark") == whole
    replay_file.write(tmp_path, {"benchmark": {name: value for name, value in whole.items() if name != missing}})
    with pytest.raises(TrustError, match="not a record of decisions"):
        replay_file.read(tmp_path, "benchmark")


def test_a_recorded_lack_of_a_winner_is_followed() -> None:
    found = replay({})
    assert found.metrics["verdict"] == {"met": False}
    assert found.metrics["nearest_miss"] is not None
    assert decision_named(found, "winner of tflite")["today"] == "student-fp32-tflite"


@pytest.mark.parametrize(
    ("recorded", "message"),
    [
        (
            {"winners": {"tflite": "sparse-fp32-tflite"}},
            "'sparse-fp32-tflite', but its variants are student-fp32-tflite",
        ),
        ({"winners": {"onnx": "student-fp32-tflite"}}, "'student-fp32-tflite', but its variants are none"),
        ({"winners": {"tflite": ["student-fp32-tflite"]}}, "but its variants are"),
        ({"winners": {"tflite": "student-int8-tflite"}}, "outside the budget: accuracy drop 8.00 pp may be 8.0"),
        ({"winners": {"openvino": "a"}}, "'a' is for target 'openvino'; this run has tflite, onnx"),
        ({"winners": {}, "too_slow": ["nobody"]}, "calls 'nobody' too slow, but the variants are"),
        (
            {"winners": {"tflite": "student-fp32-tflite"}, "too_slow": ["student-fp32-tflite"], "latency_p50_ms": 1.0},
            "the record contradicts itself",
        ),
        ({"winners": {}, "too_slow": ["student-fp32-tflite"]}, "the budget has no latency_p50_ms"),
        ({"winners": {}, "buys_nothing": ["nobody"]}, "says that 'nobody' gives no speed-up, but the variants are"),
        (
            {"winners": {"tflite": "student-fp32-tflite"}, "buys_nothing": ["student-fp32-tflite"]},
            "the record contradicts itself: student-fp32-tflite wins tflite and gives no speed-up",
        ),
    ],
)
def test_an_impossible_record_is_refused(recorded: Row, message: str) -> None:
    with pytest.raises(StageError, match=message):
        replay(**recorded)
