"""Limits beside a reference and limits of single targets: who is inside, who is too slow, who comes nearest."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from edgekit.core import artifacts
from edgekit.core.errors import StageError
from edgekit.core.schema.limits import BudgetLimits
from edgekit.core.schema.variants import VariantRow
from edgekit.core.variants import read_variants
from edgekit.data import load as load_data
from edgekit.report import checks
from edgekit.stages import benchmark
from edgekit.stages.benchmark.winners import ClassTimings, names_too_slow
from edgekit.workbook.plan import load_plan
from tests.conftest import TINY, FinishedRun
from tests.stages.benchmark.synthetic import Row, budget, decided, decision_named, row, timings

THEIRS = "theirs.tflite"
NAMES = ("baseline-fp32-tflite", "student-fp32-tflite", "student-int8-tflite", "student-fp32-onnx")
ROWS = [row(NAMES[0], size=4000), row(NAMES[1]), row(NAMES[2], size=500), row(NAMES[3])]
TIMES = {NAMES[0]: 0.4, NAMES[1]: 0.1, NAMES[2]: 0.05, NAMES[3]: 0.09, THEIRS: 0.1}


def beside(ratio: float, of: str = THEIRS) -> Row:
    return {"ratio": ratio, "of": of}


def test_a_variant_is_too_slow_where_the_whole_interval_of_its_ratio_is_above_the_limit() -> None:
    found = decided(ROWS, TIMES, budget(latency_p50=beside(0.6)))
    slow = sorted([NAMES[0], NAMES[1], NAMES[3]])
    assert found.content["measured"] == {"winners": {"tflite": NAMES[2]}, "too_slow": slow, "buys_nothing": []}
    decision = decision_named(found, "too slow for 0.6 of theirs.tflite's p50")
    against = {each["name"]: each["beside"] for each in decision["candidates"]}
    assert decision["chosen"] == slow and against[NAMES[2]]["ratio"] == pytest.approx(0.5)
    assert against[NAMES[2]]["name"] == THEIRS and against[NAMES[2]]["limit"] == 0.6
    shown = {each["name"]: each for each in found.metrics["rows"]}
    assert shown[NAMES[3]]["reasons"] == ["p50 is over 0.6 of theirs.tflite's p50"]
    assert shown[NAMES[3]]["limits"]["beside"]["ratio"] == pytest.approx(0.9)
    assert "limits" not in found.content["variants"][1], "no figure of a clock is content"


def test_what_noise_leaves_open_is_no_reason_to_reject() -> None:
    """Twice the machine's pace for both changes nothing; a ratio that the rounds do not establish neither."""
    limits = budget(latency_p50=beside(0.6))
    precise = timings({**TIMES, NAMES[2]: 0.065}, noise=0.005)
    unsure = timings({**TIMES, NAMES[2]: 0.065}, noise=0.3)
    slower = timings({name: 2 * ms for name, ms in TIMES.items()}, noise=0.005)
    rows: Any = ROWS
    assert NAMES[2] in names_too_slow(rows, ClassTimings(precise), limits)
    assert NAMES[2] not in names_too_slow(rows, ClassTimings(unsure), limits)
    assert NAMES[2] not in names_too_slow(rows, ClassTimings(slower), limits)


def test_the_baseline_is_its_float_file_on_the_same_target() -> None:
    found = decided(ROWS[:3], TIMES, budget(latency_p50=beside(0.2, "baseline"), size=beside(0.25, "baseline")))
    assert found.metrics["winners"] == {"tflite": NAMES[2]}
    shown = {each["name"]: each for each in found.metrics["rows"]}
    assert shown[NAMES[2]]["limits"]["size_bytes"] == 1000
    assert shown[NAMES[2]]["limits"]["beside"]["name"] == NAMES[0]
    assert shown[NAMES[0]]["reasons"] == [
        "4,000 bytes are over 1,000 (0.25 of the float baseline)",
        "p50 is over 0.2 of the float baseline's p50",
    ]


def test_a_target_without_a_float_file_of_the_baseline_is_named() -> None:
    with pytest.raises(
        StageError, match="a limit of onnx is relative to the baseline, and the baseline has no float file"
    ):
        decided(ROWS, TIMES, budget(latency_p50=beside(0.5, "baseline")))


def test_each_target_is_held_to_its_own_limits() -> None:
    own = {"onnx": {"size_bytes": 2000, "latency_p50_ms": 0.2}}
    found = decided(ROWS, TIMES, budget(size_bytes=600, latency_p50=beside(0.6), targets=own))
    assert found.metrics["winners"] == {"tflite": NAMES[2], "onnx": NAMES[3]}
    assert decision_named(found, "too slow for the limit of its target")["chosen"] == sorted(NAMES[:2])
    shown = {each["name"]: each for each in found.metrics["rows"]}
    assert shown[NAMES[3]]["limits"] == {"latency_p50_ms": 0.2, "size_bytes": 2000}
    assert shown[NAMES[1]]["reasons"][0] == "1,000 bytes are over 600"


def test_without_new_limits_rows_and_decisions_are_as_before() -> None:
    found = decided(ROWS, TIMES, budget(latency_p50_ms=0.06))
    assert not any("limits" in each for each in found.metrics["rows"])
    assert not any("beside" in each for each in decision_named(found, "too slow for 0.06 ms")["candidates"])
    assert list(found.content["budget"]) == ["accuracy_drop_pp", "accuracy_confidence", "latency_p50_ms", "size_bytes"]


def test_on_devices_a_variant_must_keep_its_ratio_to_the_baseline_on_each() -> None:
    limits, rows = budget(latency_p50=beside(0.2, "baseline")), ROWS[:3]
    kept, broken = timings(TIMES, 0.005), timings({**TIMES, NAMES[2]: 0.1}, 0.005)
    checked: Any = rows
    assert NAMES[2] not in names_too_slow(checked, ClassTimings(kept, (kept,)), limits)
    assert NAMES[2] in names_too_slow(checked, ClassTimings(kept, (broken,)), limits)


def test_the_nearest_miss_is_reported_beside_its_reference() -> None:
    found = decided(ROWS, TIMES, budget(latency_p50=beside(0.4)))
    nearest = found.metrics["nearest_miss"]
    assert nearest["name"] == NAMES[2]
    message = checks.missed_message(nearest, found.metrics["budget"])
    assert "over by 25% of p50, which is 0.5 (0.5 to 0.5) times that of theirs.tflite: p50 is over 0.4 of" in message


def test_the_nearest_miss_is_nearest_to_the_limits_of_its_target() -> None:
    own = {"onnx": {"size_bytes": 999}}
    found = decided([ROWS[1], ROWS[3]], TIMES, budget(size_bytes=100, targets=own))
    assert found.metrics["nearest_miss"]["name"] == NAMES[3]
    assert "over by 1 bytes (0%)" in checks.missed_message(found.metrics["nearest_miss"], found.metrics["budget"])


def test_a_recorded_decision_is_followed_beside_todays_ratio() -> None:
    limits = budget(latency_p50=beside(0.6))
    recorded = {"winners": {"tflite": NAMES[1]}, "too_slow": [NAMES[2]], "buys_nothing": []}
    found = decided(ROWS, TIMES, limits, recorded)
    assert found.metrics["winners"] == {"tflite": NAMES[1]}
    decision = decision_named(found, "too slow for 0.6 of theirs.tflite's p50")
    assert decision["replayed"] and decision["chosen"] == [NAMES[2]] and NAMES[2] not in decision["today"]
    with pytest.raises(StageError, match="too slow, but the budget has no latency_p50"):
        decided(ROWS, TIMES, budget(latency_p50=beside(0.6), targets={"tflite": {"latency_p50_ms": None}}), recorded)


@pytest.mark.long
def test_a_real_run_is_held_to_a_reference_models_time_and_bytes(tiny_run: FinishedRun, tmp_path: Path) -> None:
    """The rival is the run's own float file of the baseline, so half of its time is out of that file's reach."""
    file = next(each for each in read_variants(artifacts.load(tiny_run.folder / "convert")) if each.name == NAMES[0])
    theirs = shutil.copy(tiny_run.folder / "convert" / file.files[0], tmp_path / THEIRS)
    plan = load_plan(TINY)
    rival = f"benchmark.rivals=[{{path: {theirs}, preprocess: {json.dumps(plan.run.preprocess)}}}]"
    limits = (
        f"budget={{accuracy_drop_pp: 100.0, latency_p50: {json.dumps(beside(0.5))}, size: {json.dumps(beside(1.0))}}}"
    )
    plan = load_plan(TINY, [rival, limits, "benchmark.load_s=0", "benchmark.rounds=10", "benchmark.most_rounds=10"])
    config: Any = plan.stages["benchmark"]
    sealed = benchmark.run(artifacts.load(tiny_run.folder / "convert"), load_data(plan.data), config, tmp_path / "out")
    found = sealed.metrics
    twin = next(each for each in found["rows"] if each["name"] == NAMES[0])
    assert twin["limits"]["size_bytes"] == twin["bytes"]
    assert twin["limits"]["beside"]["ratio"] == pytest.approx(1.0, rel=0.2)
    assert twin["reasons"] == [f"p50 is over 0.5 of {THEIRS}'s p50"]
    decision = next(each for each in found["decisions"] if each["decision"] == f"too slow for 0.5 of {THEIRS}'s p50")
    for each in found["rows"][1:]:
        TypeAdapter(VariantRow).validate_python(each)
        against = next(one for one in decision["candidates"] if one["name"] == each["name"])["beside"]
        assert (each["name"] in decision["chosen"]) == (against["ratio_low"] > 0.5)
    TypeAdapter(BudgetLimits).validate_python(found["budget"])
