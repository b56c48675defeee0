"""What to do next: each rule in its own situation, and no step if nothing is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from edgekit.report.field import advice
from edgekit.report.field.comparison import compare_reports
from edgekit.report.field.reports import FieldReport
from tests.report.field.reports import field_report, finding, latencies, monitor_verdict


def actions(report: FieldReport, then: FieldReport | None = None) -> list[str]:
    return [each.action for each in advice.steps(report, compare_reports(then, report) if then else None)]


def test_a_healthy_report_asks_for_nothing() -> None:
    assert actions(field_report(), field_report()) == ["nothing"]
    assert actions(field_report(verdict=monitor_verdict("healthy", finding("brightness", alarm=False)))) == ["nothing"]


@pytest.mark.parametrize(
    ("changes", "action", "why"),
    [
        ({"answered": 0, "labels": {}, "latency_ms": {}}, "look at the device", "it gave no answer"),
        ({"refused": {"invalid": 0, "failed": 2}}, "another interpreter", "the interpreter failed 2 times"),
        ({"refused": {"invalid": 100, "failed": 0}}, "look at the inputs", "100 of 3,100 samples were refused"),
        ({"dropped": 400}, "look at the device", "400 of 3,400 windows came too fast to be answered"),
        ({"machine__last__throttled": True}, "look at the device", "the processor throttled"),
        ({"machine__last__under_voltage": True}, "look at the device", "too little voltage"),
        ({"machine__last__temperature_c": 84.0}, "look at the device", "it reached 84 °C"),
    ],
)
def test_a_report_alone(changes: dict[str, Any], action: str, why: str) -> None:
    (step,) = advice.steps(field_report(**changes))
    assert step.action == action and why in step.why and step.how


def test_few_refused_and_dropped_samples_are_nobody_s_fault() -> None:
    assert actions(field_report(refused={"invalid": 20, "failed": 0}, dropped=20)) == ["nothing"]


def test_changed_inputs_are_looked_at_and_an_int8_network_is_recalibrated() -> None:
    verdict = monitor_verdict("warning", finding("brightness", text="inputs are darker"), finding("noise"))
    (step,) = advice.steps(field_report(verdict=verdict))
    assert (step.action, step.why) == ("look at the inputs", "inputs changed: inputs are darker; so did noise")
    result = advice.steps(field_report(verdict=verdict, bundle__variant="student-int8-tflite"))
    assert [each.action for each in result] == ["look at the inputs", "recalibrate"]


def test_refused_inputs_recalibrate_nothing() -> None:
    verdict = monitor_verdict("warning", finding("refused", text="100% of the last 64 inputs got no answer"))
    assert actions(field_report(verdict=verdict, bundle__variant="student-int8-tflite")) == ["look at the inputs"]


@pytest.mark.parametrize("statistic", ["confidence", "margin", "class:star", "value:speed", "score", "projection:1"])
def test_changed_answers_ask_for_training(statistic: str) -> None:
    assert actions(field_report(verdict=monitor_verdict("warning", finding(statistic)))) == ["retrain"]


def test_golden_vectors_that_come_out_wrong_are_not_the_inputs_fault() -> None:
    verdict = monitor_verdict("wrong", canary={"ok": False, "reason": "top1 differs"})
    (step,) = advice.steps(field_report(verdict=verdict))
    assert step.action == "another interpreter" and "top1 differs" in step.why


class TestLatency:
    def test_slower_with_another_interpreter(self) -> None:
        then = field_report(latency_ms=latencies(1.0))
        now = field_report(latency_ms=latencies(2.0, seed=2), interpreter__version="9.9")
        (step,) = advice.steps(now, compare_reports(then, now))
        assert step.action == "another interpreter"
        assert "version of the interpreter" in step.why and "9.9 now" in step.why

    def test_slower_with_the_same_one(self) -> None:
        then, now = field_report(latency_ms=latencies(1.0)), field_report(latency_ms=latencies(2.0, seed=2))
        (step,) = advice.steps(now, compare_reports(then, now))
        assert step.action == "look at the device" and "with the same interpreter" in step.why

    def test_another_device_or_another_bundle_says_nothing(self) -> None:
        then = field_report(latency_ms=latencies(1.0))
        for change in ({"device__cpu": "another"}, {"bundle__identity": "another"}):
            assert actions(field_report(latency_ms=latencies(2.0, seed=2), **change), then) == ["nothing"]

    def test_throttling_comes_first_and_alone(self) -> None:
        now = field_report(latency_ms=latencies(3.0, seed=2), machine__last__throttled=True)
        assert [
            each.why for each in advice.steps(now, compare_reports(field_report(latency_ms=latencies(1.0)), now))
        ] == ["the processor throttled or had too little voltage"]

    def test_a_slower_preprocess_points_at_the_inputs(self) -> None:
        then, now = (field_report(latency_ms=latencies(ms, seed=int(ms), part="preprocess")) for ms in (1.0, 2.0))
        assert actions(now, then) == ["look at the inputs"]

    def test_no_difference_is_none(self) -> None:
        assert actions(field_report(latency_ms=latencies(1.0, seed=2)), field_report(latency_ms=latencies(1.0))) == [
            "nothing"
        ]


def test_the_device_comes_before_the_answers_and_these_before_latency() -> None:
    verdict = monitor_verdict("warning", finding("confidence"), finding("brightness"))
    now = field_report(verdict=verdict, machine__last__temperature_c=90.0, latency_ms=latencies(3.0, seed=2))
    then = field_report(latency_ms=latencies(1.0))
    assert actions(now, then) == ["look at the device", "look at the inputs", "retrain", "look at the device"]
