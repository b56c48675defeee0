"""Compare two field reports, an earlier and a later one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edgekit.device.monitor.counts import TOTAL
from edgekit.report.field.latency import LatencyRatio, latency_ratio, percentile
from edgekit.report.field.reports import FieldReport
from edgekit.report.formatting import bounds_text, milliseconds, times

PERCENTILES = {"p50": 0.5, "p99": 0.99}
CONDITION_NAMES = {
    ("bundle", "name"): "bundle",
    ("bundle", "version"): "version of the bundle",
    ("bundle", "variant"): "variant",
    ("bundle", "identity"): "content of the bundle",
    ("interpreter", "name"): "interpreter",
    ("interpreter", "version"): "version of the interpreter",
    ("interpreter", "threads"): "threads",
    ("interpreter", "device"): "OpenVINO's device",
    ("device", "host"): "host",
    ("device", "cpu"): "processor",
    ("device", "cores"): "cores",
    ("device", "machine"): "architecture",
    ("device", "system"): "system",
    ("device", "python"): "Python",
    ("device", "numpy"): "numpy",
    ("device", "emulator"): "emulator",
}
"""The entries of a report that describe its conditions, and their names for people."""
NO_DIFFERENCE = "no difference"
PART_NAMES = {"wait": "waiting", "whole": "the whole answer"}


@dataclass(frozen=True)
class PartComparison:
    """A percentile of the latency of one part of an answer in both reports, and the later one divided by the earlier.

    The parts of an answer are, for example, `preprocess` and `execute`.
    """

    part: str
    percentile: str
    a_ms: float | None
    b_ms: float | None
    ratio: float | None
    low: float | None
    high: float | None
    outcome: str
    """`slower`, `faster` or `no difference`, or the reason why none of these can be stated."""

    @property
    def ratio_text(self) -> str:
        """The ratio and its confidence interval as text for a table."""
        if self.ratio is None:
            return "–"
        interval = f" ({bounds_text(self.low, self.high)})" if self.low is not None and self.high is not None else ""
        return times(self.ratio) + interval


@dataclass(frozen=True)
class FieldComparison:
    """Two field reports, an earlier one `a` and a later one `b`.

    `changed` maps the name of each condition that differs to its values in `a` and `b`.
    """

    a: FieldReport
    b: FieldReport
    parts: tuple[PartComparison, ...]
    changed: Mapping[str, tuple[Any, Any]]

    @property
    def same_bundle(self) -> bool:
        """Whether both reports are about exactly the same bundle."""
        return bool(self.a.bundle["identity"] == self.b.bundle["identity"])

    def part(self, name: str, percentile_name: str = "p50") -> PartComparison | None:
        """Return the comparison of one part, or None if neither report has it."""
        return next((each for each in self.parts if (each.part, each.percentile) == (name, percentile_name)), None)

    @property
    def sentences(self) -> list[str]:
        """The differences in sentences; the first is about latency."""
        return [
            _latency_sentence(self),
            *(f"{name}: {was or 'none'} then, {now or 'none'} now." for name, (was, now) in self.changed.items()),
            *_machine_sentences(self.a, self.b),
            *_health_sentences(self.b),
        ]


def compare_reports(a: FieldReport, b: FieldReport) -> FieldComparison:
    """Compare two reports, the earlier one first."""
    names = list(dict.fromkeys([*a.parts, *b.parts]))
    names.sort(key=lambda name: name == TOTAL)
    parts = tuple(_compare_part(a, b, name, each) for name in names for each in PERCENTILES)
    changes = {}
    for (group, key), name in CONDITION_NAMES.items():
        pair = (a.content[group].get(key), b.content[group].get(key))
        if pair[0] != pair[1]:
            changes[name] = pair
    return FieldComparison(a, b, parts, changes)


def _compare_part(a: FieldReport, b: FieldReport, name: str, percentile_name: str) -> PartComparison:
    counts = a.counts(name), b.counts(name)
    compared = latency_ratio(*counts, PERCENTILES[percentile_name])
    percentiles = [percentile(one, PERCENTILES[percentile_name]) for one in counts]
    a_ms, b_ms = (None if one is None else one.value_ms for one in percentiles)
    if compared is None:
        return PartComparison(name, percentile_name, a_ms, b_ms, None, None, None, "in one report only")
    return PartComparison(
        name, percentile_name, a_ms, b_ms, compared.ratio, compared.low, compared.high, _verdict(compared)
    )


def _verdict(compared: LatencyRatio) -> str:
    if compared.low is None:
        return "too few answers to say"
    return "slower" if compared.is_slower else "faster" if compared.is_faster else NO_DIFFERENCE


def _latency_sentence(comparison: FieldComparison) -> str:
    whole = comparison.part(TOTAL)
    if whole is None or whole.ratio is None:
        return "Latency is not compared: one of the reports has no answer."
    then_ms, now_ms = milliseconds(whole.a_ms), milliseconds(whole.b_ms)
    first = f"The median (p50) time per answer was {then_ms} ms then and is {now_ms} ms now"
    if whole.low is None:
        return f"{first}, a ratio of {times(whole.ratio)}. There are too few answers for a confidence interval."
    changed_parts = [
        each for each in comparison.parts if each.percentile == "p50" and each.outcome in ("slower", "faster")
    ]
    details = ", ".join(
        f"{PART_NAMES.get(each.part, each.part)} is {each.outcome}, {each.ratio_text}" for each in changed_parts
    )
    return f"{first}. Changes: {details}." if details else f"{first}. No part became significantly slower or faster."


def _machine_sentences(a: FieldReport, b: FieldReport) -> list[str]:
    sentences = []
    if a.temperature_c is not None and b.temperature_c is not None:
        sentences.append(
            f"The highest temperature was {a.temperature_c:.0f} °C then and is {b.temperature_c:.0f} °C now."
        )
    if b.throttled:
        reports = "both reports" if a.throttled else "the later report, but not in the earlier one"
        sentences.append(f"The processor throttled or had too little voltage in {reports}.")
    elif a.throttled:
        sentences.append(
            "The processor throttled or had too little voltage in the earlier report, but not in the later one."
        )
    return sentences


def _health_sentences(report: FieldReport) -> list[str]:
    verdict = report.verdict
    if verdict is None:
        return [
            "No monitor was attached, so it is unknown whether the answers are right: see `edgerun predict --watch`."
        ]
    return [f"Health now: {verdict.get('level')}. {str(verdict.get('reason') or '').strip()}".strip()]
