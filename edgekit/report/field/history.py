"""Show a folder of field reports as a history: choose the two reports to compare, and make tables and figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator, PercentFormatter

from edgekit.core.errors import DataError
from edgekit.device.monitor.counts import TOTAL
from edgekit.device.monitor.histogram import BOUNDS_MS, percentile_ms
from edgekit.report.field import advice
from edgekit.report.field.comparison import PART_NAMES, FieldComparison, compare_reports
from edgekit.report.field.latency import percentile
from edgekit.report.field.reports import FieldReport
from edgekit.report.figures import ACCENT, DARK, PLAIN_TEXT_STYLE, STYLE, PlotStyle, close_figure, plain_ticks
from edgekit.report.formatting import count, milliseconds, shorten_middle
from edgekit.report.tables import Table

LEVELS = ("early", "healthy", "warning", "wrong")
MIN_EVIDENCE = 0.01
"""Findings with less evidence (−log₁₀ of the corrected p-value) than this are not shown."""
COLUMNS = ("report", "from", "bundle", "host", "interpreter", "answered", "refused", "dropped", "hottest, °C", "health")
RANKS = {0.5: "p50", 0.9: "p90", 0.99: "p99"}
CURVE_STYLES: dict[str, tuple[str, str]] = {"then": ("#333333", "--"), "now": (DARK, "-")}
HEALTH_STYLES = {"early": ("#777777", "."), "healthy": (DARK, "o"), "warning": (ACCENT, "^"), "wrong": (ACCENT, "X")}
"""Colour and marker of each level of health. The marker distinguishes the levels in greyscale, too."""
MAX_NAME_LENGTH = 34
MAX_FINDINGS = 20


@dataclass(frozen=True)
class ReportHistory:
    """All reports, the earliest first, and the two that are compared, which belong to the same bundle if possible."""

    reports: tuple[FieldReport, ...]
    then: FieldReport
    now: FieldReport

    @property
    def comparison(self) -> FieldComparison:
        """The comparison of the later report with the earlier one. A single report is compared with itself."""
        return compare_reports(self.then, self.now)


def of(reports: Sequence[FieldReport], then: str = "", now: str = "") -> ReportHistory:
    """Choose the two reports to compare, by name.

    By default these are the latest report, and the earliest one of the same bundle, from the same host if possible.

    Raises
    ------
    DataError
        There is no report, or none with that name.
    """
    if not reports:
        raise DataError("no field report; `edgerun predict --report FILE.json` writes one")
    latest = _report_named(reports, now) if now else reports[-1]
    return ReportHistory(tuple(reports), _report_named(reports, then) if then else _earliest(reports, latest), latest)


def _report_named(reports: Sequence[FieldReport], name: str) -> FieldReport:
    report = next((each for each in reports if each.name == name.removesuffix(".json")), None)
    if report is None:
        raise DataError(f"no field report is called {name!r}; there are {', '.join(each.name for each in reports)}")
    return report


def _earliest(reports: Sequence[FieldReport], now: FieldReport) -> FieldReport:
    same_bundle = [each for each in reports if each.bundle["identity"] == now.bundle["identity"]]
    same_host = [
        each for each in same_bundle if each.content["device"].get("host") == now.content["device"].get("host")
    ]
    return (same_host if len(same_host) > 1 else same_bundle)[0]


def rows(history: ReportHistory) -> list[dict[str, Any]]:
    """Return the values of each report that are drawn over time, such as its date, p50, p99, temperature and health."""
    return [_row(each) for each in history.reports]


def drift(report: FieldReport) -> list[dict[str, Any]]:
    """Return the findings of the report's monitor, the strongest first. The result is empty if there was no monitor."""
    findings = (report.verdict or {}).get("findings") or ()
    rows = [
        {
            "statistic": str(each.get("statistic")),
            "evidence": float(each.get("evidence") or 0.0),
            "alarm": bool(each.get("alarm")),
            "text": str(each.get("text") or ""),
        }
        for each in findings
    ]
    return sorted(rows, key=lambda each: (-each["evidence"], each["statistic"]))


def _row(report: FieldReport) -> dict[str, Any]:
    p50, p99 = (percentile(report.counts(TOTAL), share) for share in (0.5, 0.99))
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


def reports_table(history: ReportHistory) -> Table:
    """Show all reports, the earliest first, with the two that are compared marked."""
    rows = []
    for each in history.reports:
        content = each.content
        role = " (then)" if each is history.then else " (now)" if each is history.now else ""
        interpreter = content["interpreter"]
        rows.append(
            (
                f"{each.name}{role}",
                content["from"][:10],
                f"{each.bundle['name']} {each.bundle['version']}",
                content["device"].get("host"),
                f"{interpreter.get('name')} {interpreter.get('version')}",
                count(each.answered),
                count(sum(content["refused"].values())),
                count(content["dropped"]),
                "–" if each.temperature_c is None else f"{each.temperature_c:.0f}",
                (each.verdict or {}).get("level", "–"),
            )
        )
    return Table(COLUMNS, rows)


def latency_table(comparison: FieldComparison) -> Table:
    """Show p50 and p99 of each part in the earlier and the later report."""
    rows = [
        (
            PART_NAMES.get(each.part, each.part),
            each.percentile,
            milliseconds(each.a_ms),
            milliseconds(each.b_ms),
            each.ratio_text,
            each.outcome,
        )
        for each in comparison.parts
    ]
    return Table(("part", "", "then, ms", "now, ms", "now / then", "now it is"), rows)


def findings_table(history: ReportHistory) -> Table:
    """Show the findings of the later report's monitor, one statistic per row."""
    rows = [
        (each["statistic"], f"{each['evidence']:.2f}", "alarm" if each["alarm"] else "", each["text"])
        for each in drift(history.now)
        if each["alarm"] or each["evidence"] >= MIN_EVIDENCE
    ]
    if not rows:
        return Table(
            ("statistic",), (), "no monitor was attached, or it saw too few samples: see `edgerun predict --watch`"
        )
    return Table(("statistic", "evidence", "", "in words"), rows)


def steps_table(history: ReportHistory) -> Table:
    """Show the steps to take, the most urgent first."""
    rows = [
        (number, step.action, step.why, step.how)
        for number, step in enumerate(advice.steps(history.now, history.comparison), 1)
    ]
    return Table(("", "step", "why", "how"), rows)


def latency_figure(counts: Mapping[str, Sequence[int]], parts: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw two panels: the latency distributions of both reports, and the ratio of each part's p50, now to then.

    `counts` has the counted latencies by the name of the report, "then" or "now". `parts` has a row for each part of an
    answer, with `part`, `ratio`, `low` and `high`. If a row has no interval, only its ratio is drawn.
    """
    shown = [row for row in parts if row["ratio"] is not None]
    with plt.rc_context(STYLE):
        figure, (left, right) = plt.subplots(1, 2, figsize=(9.2, 3.6), layout="constrained", width_ratios=(3, 2))
        for name, each in counts.items():
            _curve(left, name, each)
        left.set_xscale("log")
        plain_ticks(left)
        left.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        left.set_xlim(right=max(map(_axis_limit_ms, counts.values())))
        left.set(ylim=(0, 1.03), xlabel="one answer, ms (log scale)", ylabel="share of answers at most this long")
        left.set_title("Latency of all answers")
        left.legend(loc="lower right", fontsize=8, handlelength=3.2)
        _ratios(right, shown)
    return close_figure(figure)


def figure(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw the reports in order: p50 and p99 of an answer, the highest temperature, and the monitor's verdict."""
    places = range(len(rows))
    hot = [row["hottest_c"] for row in rows]
    panels = 2 if any(each is not None for each in hot) else 1
    with plt.rc_context(PLAIN_TEXT_STYLE):
        figure, axes = plt.subplots(
            panels, 1, figsize=(8.4, 2.6 + 1.3 * (panels - 1)), layout="constrained", sharex=True, squeeze=False,
            height_ratios=(2, 1)[:panels],
        )  # fmt: skip
        top: Axes = axes[0][0]
        for key, line, label in (("p50_ms", "-", "p50"), ("p99_ms", ":", "p99")):
            top.plot(places, [row[key] for row in rows], line, color="#333333", linewidth=1.3, label=label)
        for level, (colour, marker) in HEALTH_STYLES.items():
            at = [place for place in places if rows[place]["health"] == level and rows[place]["p50_ms"] is not None]
            if at:
                y = [rows[place]["p50_ms"] for place in at]
                top.plot(at, y, marker, color=colour, markersize=8, linestyle="none", label=level)
        top.set_yscale("log")
        top.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
        top.yaxis.set_minor_formatter(NullFormatter())
        top.margins(y=0.15)
        top.set_ylabel("one answer, ms (log scale)")
        top.set_title("One report after the other; markers are the monitor's verdict")
        figure.legend(loc="outside right upper", fontsize=8)
        if panels == 2:
            below: Axes = axes[1][0]
            below.plot(
                places, [float("nan") if each is None else each for each in hot], "s-", color="#333333", markersize=4
            )
            for place in places:
                if rows[place]["throttled"]:
                    below.annotate("throttled", (place, hot[place] or 0), xytext=(0, -11), textcoords="offset points",
                                   ha="center", fontsize=8, color=ACCENT)  # fmt: skip
            below.set_ylabel("hottest, °C")
            below.margins(y=0.45)
        last: Axes = axes[-1][0]
        step = max(1, -(-len(rows) // 6))
        last.xaxis.set_major_locator(FixedLocator(list(places)[::step]))
        last.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _when(rows[int(value)])))
        last.tick_params(axis="x", labelsize=8)
    return close_figure(figure)


def drift_figure(findings: Sequence[Mapping[str, Any]], alarm: float) -> Figure | None:
    """Draw the evidence of each statistic, as −log₁₀ of its corrected p-value, and the threshold of an alarm.

    Returns None if there is no finding.
    """
    shown = list(findings)[:MAX_FINDINGS]
    if not shown:
        return None
    with plt.rc_context(PLAIN_TEXT_STYLE):
        figure, axes = plt.subplots(figsize=(7.6, 0.9 + 0.28 * len(shown)), layout="constrained")
        for place, row in enumerate(shown):
            look: PlotStyle = (
                {"color": ACCENT, "hatch": "///", "edgecolor": "white"} if row["alarm"] else {"color": "#bbbbbb"}
            )
            axes.barh(place, row["evidence"], height=0.66, **look)
        axes.axvline(alarm, color="#333333", linewidth=1, linestyle="--")
        axes.set_yticks(range(len(shown)), [shorten_middle(row["statistic"], MAX_NAME_LENGTH) for row in shown])
        axes.set_ylim(len(shown) - 0.4, -0.6)
        axes.set_xscale("log")
        axes.set_xlim(alarm / 20, 1.3 * max(alarm, *(row["evidence"] for row in shown)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.grid(visible=False, axis="y")
        axes.set_xlabel("evidence, −log10 of the corrected p-value (log scale); hatched: beyond the alarm (dashed)")
        axes.set_title("What changed since validation")
    return close_figure(figure)


def _curve(axes: Axes, name: str, counts: Sequence[int]) -> None:
    total = sum(counts)
    if not total:
        return
    colour, line = CURVE_STYLES.get(name, ("#777777", "-."))
    shares = [each / total for each in accumulate(counts)][: len(BOUNDS_MS)]
    first = next(place for place, share in enumerate(shares) if share > 0)
    last = next((place for place, share in enumerate(shares) if share >= 1), len(shares) - 1)
    places = range(max(0, first - 1), last + 1)
    axes.plot([BOUNDS_MS[place] for place in places], [shares[place] for place in places], line, color=colour,
              linewidth=1.6, label=f"{name}, {total:,} answers")  # fmt: skip
    for share, rank in RANKS.items():
        if name == "now":
            axes.axhline(share, color="#777777", linewidth=0.7, linestyle=":", zorder=1)
            axes.annotate(rank, (0.0, share), xycoords=("axes fraction", "data"), xytext=(3, 2),
                          textcoords="offset points", fontsize=8)  # fmt: skip


def _axis_limit_ms(counts: Sequence[int]) -> float:
    """Return the end of the latency axis. It is a little above the latency that 99.5 % of the answers did not exceed.

    The slowest answers are cut off, because they would take up most of the figure.
    """
    return 1.2 * (percentile_ms(counts, 0.995) or BOUNDS_MS[0])


def _ratios(axes: Axes, rows: Sequence[Mapping[str, Any]]) -> None:
    """Draw a dot for each part, with its interval as a line. A part with a dot above 1 takes longer now."""
    for place, row in enumerate(rows):
        is_significant = row["low"] is not None and (row["low"] > 1 or row["high"] < 1)
        colour = ACCENT if is_significant else "#333333"
        if row["low"] is not None:
            axes.plot([row["low"], row["high"]], [place, place], "-", color=colour, linewidth=2)
        axes.plot(row["ratio"], place, "D" if is_significant else "o", color=colour, markersize=6)
    axes.axvline(1, color="#333333", linewidth=1, linestyle="--")
    axes.set_xscale("log", base=2)
    ends = [row[key] for row in rows for key in ("low", "high", "ratio") if row[key] is not None] or [1]
    axes.set_xlim(min(0.5, min(ends) / 1.2), max(2, max(ends) * 1.2))
    ticks = [0.125, 0.25, 0.5, 1, 2, 4, 8, 16, 32]
    low, high = axes.get_xlim()
    axes.xaxis.set_major_locator(FixedLocator([each for each in ticks if low <= each <= high]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}×"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_yticks(range(len(rows)), [row["part"] for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("time now / time then, at p50 (◆: significantly different from 1)")
    axes.set_title("By part")


def _when(row: Mapping[str, Any]) -> str:
    return f"{shorten_middle(row['name'], 22)}\n{row['from'][:10]}"
