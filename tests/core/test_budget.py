"""Limits for all targets and for one, absolute and relative, and goals in Olive's words."""

from __future__ import annotations

from typing import Any

import pytest

from edgekit.core.budget import ReferenceModel, TargetBudget
from edgekit.core.config import Budget, validate
from edgekit.core.errors import ConfigError

BESIDE = {"ratio": 0.6, "of": "theirs.tflite"}
THEIRS = {"theirs.tflite": ReferenceModel({"path": "/a/theirs.tflite", "preprocess": []}, "5" * 64, 98_496)}


def budget(**limits: Any) -> Budget:
    return Budget.model_validate(limits)


def fault(**limits: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        validate(Budget, limits, "budget")
    return str(caught.value)


def test_a_budget_that_uses_nothing_new_is_recorded_as_before() -> None:
    found = budget(accuracy_drop_pp=2.0, size_bytes=900)
    assert list(found.model_dump()) == ["accuracy_drop_pp", "accuracy_confidence", "latency_p50_ms", "size_bytes"]
    assert found.is_plain and found.limits("onnx") == found.limits("tflite")


def test_a_target_has_its_own_limits_in_place_of_the_budgets() -> None:
    own = {
        "openvino": {"size_bytes": 80_000},
        "onnx": {"latency_p50_ms": None, "size": {"ratio": 2.0, "of": "baseline"}},
    }
    found = budget(latency_p50=BESIDE, size_bytes=50_000, targets=own)
    assert found.limits("tflite").max_bytes() == 50_000 and found.limits("openvino").max_bytes() == 80_000
    assert found.limits("onnx").max_bytes(300) == 600 and found.limits("onnx").max_bytes() is None
    assert found.limits("openvino").latency_p50 == found.latency_p50, "what a target does not limit stays"
    assert not found.limits("onnx").has_latency_limit, "null takes a limit away"
    assert Budget.model_validate(found.model_dump()) == found and not found.is_plain
    assert list(found.latency_references(["onnx"])) == [] and list(found.latency_references(["onnx", "tflite"])) == [
        "theirs.tflite"
    ]


def test_a_bundle_has_the_limits_of_its_target() -> None:
    found = budget(accuracy_drop_pp=3.0, latency_p50_ms=5.0, targets={"onnx": {"latency_p50": BESIDE, "size_bytes": 9}})
    assert found.for_target("tflite") == budget(accuracy_drop_pp=3.0, latency_p50_ms=5.0)
    assert found.for_target("onnx") == budget(accuracy_drop_pp=3.0, latency_p50=BESIDE, size_bytes=9)


def test_a_latency_is_late_where_the_whole_interval_is_above() -> None:
    beside, absolute = budget(latency_p50=BESIDE).limits("onnx"), budget(latency_p50_ms=2.0).limits("onnx")
    assert beside.exceeds_latency(0.0, {"theirs.tflite": 0.61}.__getitem__)
    assert not beside.exceeds_latency(9.9, {"theirs.tflite": 0.6}.__getitem__)
    assert absolute.exceeds_latency(2.1, {}.__getitem__) and not absolute.exceeds_latency(2.0, {}.__getitem__)
    assert not budget().limits("onnx").exceeds_latency(1e9, {}.__getitem__)


def test_what_is_known_of_a_reference_model_is_filled_in_and_another_is_refused() -> None:
    given = budget(latency_p50=BESIDE, targets={"onnx": {"size": BESIDE}})
    found = given.with_reference_models(THEIRS)
    assert found.limits("onnx").max_bytes() == 59_097
    assert found.limits("onnx").size_text() == "59,097 bytes (0.6 of theirs.tflite)"
    assert found.model_dump()["latency_p50"] == {**BESIDE, "sha256": "5" * 64}
    assert found.model_dump()["targets"] == {"onnx": {"size": {**BESIDE, "bytes": 98_496}}}
    assert found.latency_p50 and found.latency_p50.file["path"] == "/a/theirs.tflite"
    assert Budget.model_validate(found.model_dump()).with_reference_models(THEIRS) == found, (
        "a recorded budget is read again"
    )
    with pytest.raises(ValueError, match=r"size.bytes: got 7, and theirs.tflite has 98496; leave it out"):
        budget(size={**BESIDE, "bytes": 7}).with_reference_models(THEIRS)
    with pytest.raises(ValueError, match=r"^targets.onnx.size.bytes: got 7"):
        budget(targets={"onnx": {"size": {**BESIDE, "bytes": 7}}}).with_reference_models(THEIRS)
    with pytest.raises(ValueError, match=r"^latency_p50.sha256: got 777"):
        budget(latency_p50={**BESIDE, "sha256": "7" * 64}).with_reference_models(THEIRS)


def test_a_share_of_less_than_a_byte_is_a_limit_of_one() -> None:
    found = budget(size={"ratio": 1e-9, "of": "theirs.tflite"}).with_reference_models(THEIRS)
    assert found.limits("onnx").max_bytes() == 1, "result.json holds no limit of nothing"


def test_limits_are_stated_once_or_target_by_target() -> None:
    assert budget(latency_p50_ms=5, size_bytes=900).describe_limits(["onnx", "tflite"]) == [
        "p50 at most 5 ms",
        "at most 900 bytes",
    ]
    found = budget(latency_p50=BESIDE, targets={"openvino": {"size_bytes": 800, "latency_p50_ms": None}})
    assert found.describe_limits(["tflite", "openvino"]) == [
        "tflite: p50 at most 0.6 of theirs.tflite's p50",
        "openvino: at most 800 bytes",
    ]
    assert budget().describe_limits(["onnx"]) == []


def test_without_its_latency_a_budget_keeps_the_rest() -> None:
    found = budget(
        latency_p50=BESIDE, size_bytes=9, targets={"onnx": {"latency_p50_ms": 1.0}, "tflite": {"size_bytes": 5}}
    )
    assert found.without_latency() == budget(size_bytes=9, targets={"onnx": {}, "tflite": {"size_bytes": 5}})
    assert budget(latency_p50_ms=1.0).without_latency() == budget()


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (
            {"latency_p50": BESIDE, "latency_p50_ms": 1.0},
            "latency_p50_ms and latency_p50: only one of the two can be",
        ),
        ({"size": BESIDE, "size_bytes": 1}, "size_bytes and size: only one of the two can be set; leave the other out"),
        ({"size": {"ratio": 0.0, "of": "x"}}, "budget.size.ratio: got 0.0"),
        ({"latency_p50": {"ratio": 0.6}}, "budget.latency_p50.of: missing"),
        ({"targets": {"coreml": {}}}, "budget.targets.coreml"),
        ({"targets": {"onnx": {"accuracy_drop_pp": 1.0}}}, "budget.targets.onnx.accuracy_drop_pp: unknown key"),
        ({"targets": {"onnx": {"size_byte": 1}}}, 'size_byte: unknown key, did you mean "size_bytes"?'),
        ({"size": {"ratio": 0.5, "of": "baseline", "bytes": 5}}, "size: bytes: got 5, but baseline is not a file"),
        ({"latency_p50": {"ratio": 0.5, "of": "baseline", "sha256": "a"}}, "budget.latency_p50: sha256: got a"),
        ({"targets": {"onnx": {"size": BESIDE, "size_bytes": 1}}}, "budget.targets.onnx: size_bytes and size"),
    ],
)
def test_a_wrong_limit_is_named(limits: dict[str, Any], message: str) -> None:
    assert message in fault(**limits)


@pytest.mark.parametrize(
    ("goals", "limits"),
    [
        ({"accuracy": {"type": "max-degradation", "value": 0.012}}, {"accuracy_drop_pp": 1.2}),
        ({"accuracy": {"type": "min-improvement", "value": 0}}, {"accuracy_drop_pp": 0.0}),
        ({"latency_p50": {"type": "threshold", "value": 5}}, {"latency_p50_ms": 5.0}),
        (
            {"latency_p50": {"type": "percent-min-improvement", "value": 20}},
            {"latency_p50": {"ratio": 0.8, "of": "baseline"}},
        ),
        (
            {"latency_p50": {"type": "percent-max-degradation", "value": 150}},
            {"latency_p50": {"ratio": 2.5, "of": "baseline"}},
        ),
        ({"latency_p50": {"type": "max-degradation", "value": 0}}, {"latency_p50": {"ratio": 1.0, "of": "baseline"}}),
        ({"size": {"type": "threshold", "value": 90_000}}, {"size_bytes": 90_000}),
        ({"size": {"type": "percent-min-improvement", "value": 75}}, {"size": {"ratio": 0.25, "of": "baseline"}}),
    ],
)
def test_a_goal_of_olive_is_the_same_limit_as_one_of_ours(goals: dict[str, Any], limits: dict[str, Any]) -> None:
    assert budget(goals=goals) == budget(**limits)
    if "accuracy" not in goals:
        assert TargetBudget.model_validate({"goals": goals}) == TargetBudget.model_validate(limits)


@pytest.mark.parametrize(
    ("goals", "message"),
    [
        ({"accuracy": {"type": "threshold", "value": 0.9}}, "goals.accuracy: threshold 0.9 has no counterpart"),
        ({"accuracy": {"type": "percent-max-degradation", "value": 2}}, "not known before the baseline is trained"),
        ({"accuracy": {"type": "min-improvement", "value": 0.01}}, "no limit requires a variant to be better"),
        ({"accuracy": {"type": "max-degradation", "value": 2}}, "Olive's accuracy is a fraction"),
        ({"latency_p50": {"type": "min-improvement", "value": 3}}, "use percent-min-improvement, or threshold"),
        ({"latency_p50": {"type": "percent-min-improvement", "value": 100}}, "no file can meet a goal"),
        ({"latency_p50": {"type": "faster", "value": 3}}, "goals.latency_p50.type: got 'faster'; use threshold"),
        ({"latency_p50": {"type": "threshold", "value": "3"}}, "goals.latency_p50.value: got '3'"),
        ({"latency_p50": {"type": "threshold", "value": 10**400}}, "write a number from 0 to 1e+15"),
        ({"size": {"type": "threshold", "value": float("nan")}}, "goals.size.value: got nan"),
        ({"latency_p50": 3}, "goals.latency_p50: got 3; write type and value"),
        ({"latency_avg": {"type": "threshold", "value": 3}}, "goals.latency_avg: no such metric here; use accuracy"),
        ({"size": {"type": "threshold", "value": 1.5}}, "a whole number of bytes"),
        ([1], "goals: got [1]"),
    ],
)
def test_a_goal_without_a_counterpart_is_refused_in_words(goals: Any, message: str) -> None:
    assert message in fault(goals=goals)
    assert fault(goals=goals).startswith("budget: goals")


def test_a_goal_beside_a_limit_of_the_same_is_refused() -> None:
    message = fault(goals={"size": {"type": "threshold", "value": 9}}, size_bytes=9)
    assert message == "budget: goals.size and size_bytes: both limit the same quantity; leave one of them out"
