"""What to do next, by rules: each reads a report (and what it is held against), and gives a step and its reason.

The rules stand in the order in which they are to be followed. A device that throttles says nothing about a network,
so it comes before what is said of latency; answers that are wrong come before answers that are slow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgekit.device.hardware.health import HOT_C
from edgekit.report.field.reports import Report

if TYPE_CHECKING:
    from edgekit.report.field.compare import Comparison

INVALID = 0.01
"""Share of refused samples from which their sender is to be looked at."""
LATE = 0.01
"""Share of dropped windows from which a stream is too fast."""
OUTPUTS = ("confidence", "margin", "entropy", "value:", "score", "count", "norm", "projection:", "share:", "class:",
           "output_")  # fmt: skip
"""How the names of statistics of answers begin; all others are of inputs."""
LEVELS = ("doubtful", "wrong")
REFUSED = "refused"
"""The finding on samples without an answer: the network never saw them."""


@dataclass(frozen=True)
class Step:
    """`action`: look at the device, look at the inputs, another interpreter, recalibrate, retrain, or nothing."""

    action: str
    why: str
    how: str


def steps(report: Report, against: Comparison | None = None) -> list[Step]:
    """All that apply, the first to be done first; one that says `nothing` where none does."""
    found = [step for rule in RULES for step in rule(report, against)]
    return found or [Step("nothing", "no rule gives a reason to act", "read the next report in a week")]


def _silent(report: Report, against: Comparison | None) -> Iterator[Step]:
    if not report.answered:
        yield Step("look at the device", "it gave no answer", "run `edgerun selftest` and `edgerun doctor` there")


def _failed(report: Report, against: Comparison | None) -> Iterator[Step]:
    failed = report.content["refused"].get("failed", 0)
    if failed:
        why = f"the interpreter failed {failed:,} times"
        yield Step("another interpreter", why, "run `edgerun selftest` there; then `edgerun bench --compare`")


def _canary(report: Report, against: Comparison | None) -> Iterator[Step]:
    canary = (report.verdict or {}).get("canary")
    if isinstance(canary, dict) and canary.get("ok") is False:
        why = f"the golden answers differ ({canary.get('reason')}), so the inputs are not the cause"
        yield Step("another interpreter", why, "run `edgerun selftest` there; install the version of the report before")


def _hot(report: Report, against: Comparison | None) -> Iterator[Step]:
    hottest_c = report.temperature_c
    if report.throttled:
        why = "the processor throttled or had too little voltage"
    elif hottest_c is not None and hottest_c >= HOT_C:
        why = f"it reached {hottest_c:.0f} °C, and boards lower their clock from {HOT_C:.0f} °C on"
    else:
        return
    yield Step("look at the device", why, "cool it and give it a strong enough power supply, then measure again")


def _invalid(report: Report, against: Comparison | None) -> Iterator[Step]:
    invalid = report.content["refused"].get("invalid", 0)
    if report.asked and invalid > INVALID * report.asked:
        why = f"{invalid:,} of {report.asked:,} samples were refused"
        yield Step("look at the inputs", why, "compare what is sent with `edgerun info`: shape, type and range")


def _drifted(report: Report, against: Comparison | None) -> Iterator[Step]:
    verdict = report.verdict or {}
    if verdict.get("level") not in LEVELS:
        return
    alarms = [each for each in verdict.get("findings") or () if each.get("alarm")]
    outputs = [each for each in alarms if str(each.get("statistic", "")).startswith(OUTPUTS)]
    inputs = [each for each in alarms if each not in outputs]
    if inputs:
        why = f"inputs changed: {_texts(inputs)}"
        yield Step("look at the inputs", why, "check light, lens, microphone and mounting before the network")
        looked_at = any(each.get("statistic") != REFUSED for each in inputs)
        if looked_at and "int8" in str(report.bundle.get("variant")):
            yield Step(
                "recalibrate",
                "the int8 ranges were set on samples that looked different",
                "add samples kept by `--keep` to the training data, then `edgekit run --from quantize`",
            )
    if outputs:
        why = f"answers changed: {_texts(outputs)}"
        how = "label kept samples, `edgekit field pack` them, and train with them"
        yield Step("retrain", why, how)


def _slow(report: Report, against: Comparison | None) -> Iterator[Step]:
    if against is None or not against.same_bundle or report.throttled:
        return
    if (execute := against.part("execute")) and execute.said == "slower":
        if software := [name for name in SOFTWARE if name in against.changed]:
            was = "; ".join(
                f"{name} {against.changed[name][0]} then, {against.changed[name][1]} now" for name in software
            )
            how = "run `edgerun bench --compare` there, and pin the version that was faster"
            yield Step("another interpreter", f"the model takes {execute.shown} as long; {was}", how)
        elif not HARDWARE & against.changed.keys():
            why = f"the model takes {execute.shown} as long with the same interpreter"
            how = "run `edgerun bench`, which names the cause: other processes, the governor or the clock"
            yield Step("look at the device", why, how)
    if (before := against.part("preprocess")) and before.said == "slower" and not HARDWARE & against.changed.keys():
        why = f"preprocess takes {before.shown} as long"
        yield Step("look at the inputs", why, "see whether files became larger or have another rate")


def _dropped(report: Report, against: Comparison | None) -> Iterator[Step]:
    dropped = report.content["dropped"]
    if report.asked and dropped > LATE * report.asked:
        why = f"{dropped:,} of {report.asked:,} windows came too fast to be answered"
        yield Step("look at the device", why, "use a longer --hop, or a faster variant: `edgerun bench --compare`")


SOFTWARE = ("interpreter", "version of the interpreter", "threads", "numpy", "Python", "OpenVINO's device")
HARDWARE = {"host", "processor", "cores", "architecture", "emulator"}
RULES: tuple[Callable[[Report, Comparison | None], Iterator[Step]], ...] = (
    _silent, _failed, _canary, _hot, _invalid, _drifted, _slow, _dropped,
)  # fmt: skip


def _texts(found: list[Mapping[str, Any]]) -> str:
    """The strongest in words, the others by name."""
    names = [str(each.get("statistic")) for each in found]
    first = str(found[0].get("text") or names[0])
    return f"{first}; so did {', '.join(names[1:])}" if len(names) > 1 else first
