"""A folder of field reports as a history: which of them is then, and which is now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from edgekit.core.errors import DataError
from edgekit.device.monitor.counts import WHOLE
from edgekit.report.field.compare import Comparison, compare
from edgekit.report.field.latency import percentile
from edgekit.report.field.reports import Report

LEVELS = ("early", "sound", "doubtful", "wrong")


@dataclass(frozen=True)
class History:
    """`reports` are all, the earliest first; `then` and `now` are of the same bundle where two are."""

    reports: tuple[Report, ...]
    then: Report
    now: Report

    @property
    def comparison(self) -> Comparison:
        """Now against then; of a single report against itself."""
        return compare(self.then, self.now)


def of(reports: Sequence[Report], then: str = "", now: str = "") -> History:
    """Which two to compare, by name. Without one: the latest, and the earliest of its bundle, on its host if it can be.

    DataError of no report, or of no such name.
    """
    if not reports:
        raise DataError("no field report; `edgerun predict --report FILE.json` writes one")
    latest = _named(reports, now) if now else reports[-1]
    return History(tuple(reports), _named(reports, then) if then else _earliest(reports, latest), latest)


def _named(reports: Sequence[Report], name: str) -> Report:
    found = next((each for each in reports if each.name == name.removesuffix(".json")), None)
    if found is None:
        raise DataError(f"no field report is called {name!r}; there are {', '.join(each.name for each in reports)}")
    return found


def _earliest(reports: Sequence[Report], now: Report) -> Report:
    same = [each for each in reports if each.bundle["identity"] == now.bundle["identity"]]
    here = [each for each in same if each.content["device"].get("host") == now.content["device"].get("host")]
    return (here if len(here) > 1 else same)[0]


def rows(found: History) -> list[dict[str, Any]]:
    """For each report what a chart over time shows: name, from, p50 and p99 of the whole in ms, hottest, health."""
    return [_row(each) for each in found.reports]


def drift(report: Report) -> list[dict[str, Any]]:
    """Findings of its monitor, the strongest first: statistic, evidence, alarm, text. None without a monitor."""
    findings = (report.verdict or {}).get("findings") or ()
    picked = [
        {
            "statistic": str(each.get("statistic")),
            "evidence": float(each.get("evidence") or 0.0),
            "alarm": bool(each.get("alarm")),
            "text": str(each.get("text") or ""),
        }
        for each in findings
    ]
    return sorted(picked, key=lambda each: (-each["evidence"], each["statistic"]))


def _row(report: Report) -> dict[str, Any]:
    p50, p99 = (percentile(report.counts(WHOLE), share) for share in (0.5, 0.99))
    return {
        "name": report.name,
        "from": report.content["from"],
        "version": report.bundle["version"],
        "p50_ms": None if p50 is None else p50.value_ms,
        "p99_ms": None if p99 is None else p99.value_ms,
        "hottest_c": report.temperature_c,
        "throttled": report.throttled,
        "health": (report.verdict or {}).get("level"),
        "answered": report.answered,
    }
