"""Recommend by fixed rules what to do next.

Each rule reads a report and, if there is an earlier report, the comparison of the two. It yields steps with reasons.

The rules are in the order in which users should follow them. The latency of a device that throttles says nothing about
the network, so throttling comes before the other rules about latency. Wrong answers come before slow ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgekit.device.hardware.health import HOT_C
from edgekit.report.field.reports import FieldReport

if TYPE_CHECKING:
    from edgekit.report.field.comparison import FieldComparison

MAX_INVALID_SHARE = 0.01
"""Share of rejected samples above which their source should be checked."""
MAX_DROPPED_SHARE = 0.01
"""Share of dropped windows above which a stream is too fast."""
OUTPUT_STATISTICS = (
    "confidence",
    "margin",
    "entropy",
    "value:",
    "score",
    "count",
    "norm",
    "projection:",
    "share:",
    "class:",
    "output_",
)
"""The beginnings of the names of statistics about answers. All other statistics are about inputs."""
DRIFT_LEVELS = ("warning", "wrong")
REFUSED_STATISTIC = "refused"
"""The statistic of rejected samples, which never reached the network."""


@dataclass(frozen=True)
class AdvisedStep:
    """A step to take: look at the device or the inputs, change the interpreter, recalibrate, retrain, or do nothing."""

    action: str
    why: str
    how: str


def steps(report: FieldReport, against: FieldComparison | None = None) -> list[AdvisedStep]:
    """Return all steps that apply, the most urgent first, or the single step `nothing` if none applies."""
    advice = [step for rule in RULES for step in rule(report, against)]
    return advice or [AdvisedStep("nothing", "no rule gives a reason to act", "read the next report in a week")]


def _no_answers(report: FieldReport, against: FieldComparison | None) -> Iterator[AdvisedStep]:
    if not report.answered:
        yield AdvisedStep(
            "look at the device", "it gave no answer", "run `edgerun selftest` and `edgerun doctor` there"
        )


def _failed_calls(report: FieldReport, against: FieldComparison | None) -> Iterator[AdvisedStep]:
    failed = report.content["refused"].get("failed", 0)
    if failed:
        why = f"the interpreter failed {failed:,} times"
        yield AdvisedStep("another interpreter", why, "run `edgerun selftest` there; then `edgerun bench --compare`")


def _wrong_golden_answers(report: FieldReport, against: FieldComparison | None) -> Iterator[AdvisedStep]:
    canary = (report.verdict or {}).get("canary")
    if isinstance(canary, dict) and canary.get("ok") is False:
        why = f"the golden answers differ ({canary.get('reason')}), so the inputs are not the cause"
        yield AdvisedStep(
            "another interpreter",
            why,
            "run `edgerun selftest` there; install the version that the previous report names",
        )


def _overheated(report: FieldReport, against: FieldComparison | None) -> Iterator[AdvisedStep]:
    hottest_c = report.temperature_c
    if report.throttled:
        why = "the processor throttled or had too little voltage"
    elif hottest_c is not None and hottest_c >= HOT_C:
        why = f"it reached {hottest_c:.0f} °C, and boards lower their clock from {HOT_C:.0f} °C on"
    else:
        return
    yield AdvisedStep("look at the device", why, "cool it and give it a strong enough power supply, then measure again")


def _refused_samples(report: FieldReport, against: FieldComparison | None) -> Iterator[AdvisedStep]:
    invalid = report.content["refused"].get("invalid", 0)
    if report.received and invalid > MAX_INVALID_SHARE * report.received:
        why = f"{invalid:,} of {report.received:,} samples were refused"
        yield AdvisedStep("look at the inputs", why, "compare what is sent with `edgerun info`: shape, type and range")


def _drift(report: FieldReport, against: FieldComparison | None) -> Iterator[AdvisedStep]:
    verdict = report.verdict or {}
    if verdict.get("level") not in DRIFT_LEVELS:
        return
    alarms = [each for each in verdict.get("findings") or () if each.get("alarm")]
    outputs = [each for each in alarms if str(each.get("statistic", "")).startswith(OUTPUT_STATISTICS)]
    inputs = [each for each in alarms if each not in outputs]
    if inputs:
        why = f"inputs changed: {_texts(inputs)}"
        yield AdvisedStep("look at the inputs", why, "check light, lens, microphone and mounting before the network")
        has_input_alarm = any(each.get("statistic") != REFUSED_STATISTIC for each in inputs)
        if has_input_alarm and "int8" in str(report.bundle.get("variant")):
            yield AdvisedStep(
                "recalibrate",
                "the int8 ranges were set on samples that looked different",
                "add samples kept by `--keep` to the training data, then `edgekit run --from quantize`",
            )
    if outputs:
        why = f"answers changed: {_texts(outputs)}"
        how = "label kept samples, `edgekit field pack` them, and train with them"
        yield AdvisedStep("retrain", why, how)


def _slower(report: FieldReport, against: FieldComparison | None) -> Iterator[AdvisedStep]:
    if against is None or not against.same_bundle or report.throttled:
        return
    if (execute := against.part("execute")) and execute.outcome == "slower":
        if software := [name for name in SOFTWARE if name in against.changed]:
            changes = "; ".join(
                f"{name} {against.changed[name][0]} then, {against.changed[name][1]} now" for name in software
            )
            how = "run `edgerun bench --compare` there, and pin the version that was faster"
            yield AdvisedStep("another interpreter", f"the model takes {execute.ratio_text} as long; {changes}", how)
        elif not HARDWARE & against.changed.keys():
            why = f"the model takes {execute.ratio_text} as long with the same interpreter"
            how = "run `edgerun bench`, which names the cause: other processes, the governor or the clock"
            yield AdvisedStep("look at the device", why, how)
    if (
        (preprocess := against.part("preprocess"))
        and preprocess.outcome == "slower"
        and not HARDWARE & against.changed.keys()
    ):
        why = f"preprocess takes {preprocess.ratio_text} as long"
        yield AdvisedStep("look at the inputs", why, "see whether files became larger or have another rate")


def _dropped_windows(report: FieldReport, against: FieldComparison | None) -> Iterator[AdvisedStep]:
    dropped = report.content["dropped"]
    if report.received and dropped > MAX_DROPPED_SHARE * report.received:
        why = f"{dropped:,} of {report.received:,} windows came too fast to be answered"
        yield AdvisedStep(
            "look at the device", why, "use a longer --hop, or a faster variant: `edgerun bench --compare`"
        )


SOFTWARE = ("interpreter", "version of the interpreter", "threads", "numpy", "Python", "OpenVINO's device")
HARDWARE = {"host", "processor", "cores", "architecture", "emulator"}
RULES: tuple[Callable[[FieldReport, FieldComparison | None], Iterator[AdvisedStep]], ...] = (
    _no_answers, _failed_calls, _wrong_golden_answers, _overheated, _refused_samples, _drift, _slower, _dropped_windows,
)  # fmt: skip


def _texts(findings: list[Mapping[str, Any]]) -> str:
    """Return a text with the strongest finding in words and the names of the others."""
    names = [str(each.get("statistic")) for each in findings]
    first = str(findings[0].get("text") or names[0])
    return f"{first}; so did {', '.join(names[1:])}" if len(names) > 1 else first
