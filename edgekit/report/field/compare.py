"""Two field reports side by side: then and now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edgekit.device.monitor.counts import TOTAL
from edgekit.report.field.latency import Ratio, percentile, ratio
from edgekit.report.field.reports import Report
from edgekit.report.formatting import milliseconds, span, times

SHARES = {"p50": 0.5, "p99": 0.99}
NAMED = {
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
"""What of a report names the conditions, and its name for people."""
NO_DIFFERENCE = "no difference"
WORDS = {"wait": "waiting", "whole": "the whole answer"}


@dataclass(frozen=True)
class Part:
    """One percentile of one part: milliseconds in both, and the ratio of the second to the first."""

    part: str
    percentile: str
    a_ms: float | None
    b_ms: float | None
    ratio: float | None
    low: float | None
    high: float | None
    said: str

    @property
    def shown(self) -> str:
        """The ratio with its interval, for a table."""
        if self.ratio is None:
            return "–"
        interval = f" ({span(self.low, self.high)})" if self.low is not None and self.high is not None else ""
        return times(self.ratio) + interval


@dataclass(frozen=True)
class Comparison:
    """`changed` holds what differs of the conditions, by its name, (of a, of b)."""

    a: Report
    b: Report
    parts: tuple[Part, ...]
    changed: Mapping[str, tuple[Any, Any]]

    @property
    def same_bundle(self) -> bool:
        """Whether the very same bundle answered."""
        return bool(self.a.bundle["identity"] == self.b.bundle["identity"])

    def part(self, name: str, rank: str = "p50") -> Part | None:
        """One of the parts; None where a report has none of that name."""
        return next((each for each in self.parts if (each.part, each.percentile) == (name, rank)), None)

    @property
    def words(self) -> list[str]:
        """What differs, in sentences; the first is on latency."""
        return [
            _latency_in_words(self),
            *(f"{name}: {was or 'none'} then, {now or 'none'} now." for name, (was, now) in self.changed.items()),
            *_machine_in_words(self.a, self.b),
            *_drift_in_words(self.b),
        ]


def compare(a: Report, b: Report) -> Comparison:
    """The earlier one first."""
    names = list(dict.fromkeys([*a.parts, *b.parts]))
    names.sort(key=lambda name: name == TOTAL)
    parts = tuple(_part(a, b, name, rank) for name in names for rank in SHARES)
    changed = {}
    for (group, key), name in NAMED.items():
        pair = (a.content[group].get(key), b.content[group].get(key))
        if pair[0] != pair[1]:
            changed[name] = pair
    return Comparison(a, b, parts, changed)


def _part(a: Report, b: Report, name: str, rank: str) -> Part:
    counts = a.counts(name), b.counts(name)
    found = ratio(*counts, SHARES[rank])
    each = [percentile(one, SHARES[rank]) for one in counts]
    a_ms, b_ms = (None if one is None else one.value_ms for one in each)
    if found is None:
        return Part(name, rank, a_ms, b_ms, None, None, None, "in one report alone")
    return Part(name, rank, a_ms, b_ms, found.ratio, found.low, found.high, _said(found))


def _said(found: Ratio) -> str:
    if found.low is None:
        return "too few answers to say"
    return "slower" if found.is_slower else "faster" if found.is_faster else NO_DIFFERENCE


def _latency_in_words(found: Comparison) -> str:
    whole = found.part(TOTAL)
    if whole is None or whole.ratio is None:
        return "Latency is not compared: one of the reports has no answer."
    first = f"An answer took {milliseconds(whole.a_ms)} ms then and {milliseconds(whole.b_ms)} ms now, at p50: "
    if whole.low is None:
        return f"{first}{times(whole.ratio)}, with too few answers for an interval."
    moved = [each for each in found.parts if each.percentile == "p50" and each.said in ("slower", "faster")]
    which = ", ".join(f"{WORDS.get(each.part, each.part)} is {each.said}, {each.shown}" for each in moved)
    return f"{first}{which or NO_DIFFERENCE}."


def _machine_in_words(a: Report, b: Report) -> list[str]:
    words = []
    if a.temperature_c is not None and b.temperature_c is not None:
        words.append(f"The highest temperature was {a.temperature_c:.0f} °C then and is {b.temperature_c:.0f} °C now.")
    if b.throttled:
        words.append("The processor throttled or had too little voltage now" + (" and then." if a.throttled else "."))
    elif a.throttled:
        words.append("The processor throttled or had too little voltage then, but not now.")
    return words


def _drift_in_words(report: Report) -> list[str]:
    verdict = report.verdict
    if verdict is None:
        return ["No monitor was attached, so nobody knows whether it is still right: see `edgerun predict --watch`."]
    return [f"Health now: {verdict.get('level')}. {str(verdict.get('reason') or '').strip()}".strip()]
