"""A folder of field reports as a history: which of them is then and which is now, in tables and figures."""

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
from edgekit.report.field.compare import WORDS, Comparison, compare
from edgekit.report.field.latency import percentile
from edgekit.report.field.reports import Report
from edgekit.report.figures import ACCENT, DARK, NAMING, STYLE, Look, done, plain_ticks
from edgekit.report.formatting import both_ends, count, milliseconds
from edgekit.report.tables import Table

LEVELS = ("early", "sound", "doubtful", "wrong")
LEAST = 0.01
"""Evidence that is worth a row."""
COLUMNS = ("report", "from", "bundle", "host", "interpreter", "answered", "refused", "dropped", "hottest, °C", "health")
RANKS = {0.5: "p50", 0.9: "p90", 0.99: "p99"}
LOOKS: dict[str, tuple[str, str]] = {"then": ("#333333", "--"), "now": (DARK, "-")}
HEALTH = {"early": ("#777777", "."), "sound": (DARK, "o"), "doubtful": (ACCENT, "^"), "wrong": (ACCENT, "X")}
"""Colour and marker of a verdict; the marker says the same in greyscale."""
LONGEST = 34
MOST_FINDINGS = 20


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


def reports_table(found: History) -> Table:
    """All of them, the earliest first; which is *then* and which *now*."""
    rows = []
    for each in found.reports:
        content = each.content
        role = " (then)" if each is found.then else " (now)" if each is found.now else ""
        made = content["interpreter"]
        rows.append(
            (
                f"{each.name}{role}",
                content["from"][:10],
                f"{each.bundle['name']} {each.bundle['version']}",
                content["device"].get("host"),
                f"{made.get('name')} {made.get('version')}",
                count(each.answered),
                count(sum(content["refused"].values())),
                count(content["dropped"]),
                "–" if each.temperature_c is None else f"{each.temperature_c:.0f}",
                (each.verdict or {}).get("level", "–"),
            )
        )
    return Table(COLUMNS, rows)


def latency_table(found: Comparison) -> Table:
    """Each part's p50 and p99, then and now."""
    rows = [
        (
            WORDS.get(each.part, each.part),
            each.percentile,
            milliseconds(each.a_ms),
            milliseconds(each.b_ms),
            each.shown,
            each.said,
        )
        for each in found.parts
    ]
    return Table(("part", "", "then, ms", "now, ms", "now / then", "now it is"), rows)


def findings_table(found: History) -> Table:
    """What the monitor of *now* says, statistic by statistic."""
    rows = [
        (each["statistic"], f"{each['evidence']:.2f}", "alarm" if each["alarm"] else "", each["text"])
        for each in drift(found.now)
        if each["alarm"] or each["evidence"] >= LEAST
    ]
    if not rows:
        return Table(
            ("statistic",), (), "no monitor was attached, or it saw too few samples: see `edgerun predict --watch`"
        )
    return Table(("statistic", "evidence", "", "in words"), rows)


def steps_table(found: History) -> Table:
    """What to do, the first thing first."""
    rows = [
        (number, step.action, step.why, step.how)
        for number, step in enumerate(advice.steps(found.now, found.comparison), 1)
    ]
    return Table(("", "step", "why", "how"), rows)


def latency_figure(counts: Mapping[str, Sequence[int]], parts: Sequence[Mapping[str, Any]]) -> Figure:
    """Two panels: all answers' latencies by name ("then", "now"), as counts; and the ratio of each part's p50.

    `parts` are rows of part, ratio, low, high; of those without an interval the ratio alone is drawn.
    """
    shown = [row for row in parts if row["ratio"] is not None]
    with plt.rc_context(STYLE):
        figure, (left, right) = plt.subplots(1, 2, figsize=(9.2, 3.6), layout="constrained", width_ratios=(3, 2))
        for name, each in counts.items():
            _curve(left, name, each)
        left.set_xscale("log")
        plain_ticks(left)
        left.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        left.set_xlim(right=max(map(_nearly_all, counts.values())))
        left.set(ylim=(0, 1.03), xlabel="one answer, ms (log scale)", ylabel="share of answers at most this long")
        left.set_title("Latency of all answers")
        left.legend(loc="lower right", fontsize=8, handlelength=3.2)
        _ratios(right, shown)
    return done(figure)


def figure(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Reports in their order: p50 and p99 of an answer, the hottest temperature, and the monitor's verdict."""
    places = range(len(rows))
    hot = [row["hottest_c"] for row in rows]
    panels = 2 if any(each is not None for each in hot) else 1
    with plt.rc_context(NAMING):
        figure, axes = plt.subplots(
            panels, 1, figsize=(8.4, 2.6 + 1.3 * (panels - 1)), layout="constrained", sharex=True, squeeze=False,
            height_ratios=(2, 1)[:panels],
        )  # fmt: skip
        top: Axes = axes[0][0]
        for key, line, label in (("p50_ms", "-", "p50"), ("p99_ms", ":", "p99")):
            top.plot(places, [row[key] for row in rows], line, color="#333333", linewidth=1.3, label=label)
        for level, (colour, marker) in HEALTH.items():
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
    return done(figure)


def drift_figure(findings: Sequence[Mapping[str, Any]], alarm: float) -> Figure | None:
    """Evidence of each statistic, as −log₁₀ of its corrected p-value, and the line from which it is an alarm.

    None without a finding.
    """
    shown = list(findings)[:MOST_FINDINGS]
    if not shown:
        return None
    with plt.rc_context(NAMING):
        figure, axes = plt.subplots(figsize=(7.6, 0.9 + 0.28 * len(shown)), layout="constrained")
        for place, row in enumerate(shown):
            look: Look = (
                {"color": ACCENT, "hatch": "///", "edgecolor": "white"} if row["alarm"] else {"color": "#bbbbbb"}
            )
            axes.barh(place, row["evidence"], height=0.66, **look)
        axes.axvline(alarm, color="#333333", linewidth=1, linestyle="--")
        axes.set_yticks(range(len(shown)), [both_ends(row["statistic"], LONGEST) for row in shown])
        axes.set_ylim(len(shown) - 0.4, -0.6)
        axes.set_xscale("log")
        axes.set_xlim(alarm / 20, 1.3 * max(alarm, *(row["evidence"] for row in shown)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.grid(visible=False, axis="y")
        axes.set_xlabel("evidence, −log10 of the corrected p-value (log scale); hatched: beyond the alarm (dashed)")
        axes.set_title("What changed since validation")
    return done(figure)


def _curve(axes: Axes, name: str, counts: Sequence[int]) -> None:
    total = sum(counts)
    if not total:
        return
    colour, line = LOOKS.get(name, ("#777777", "-."))
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


def _nearly_all(counts: Sequence[int]) -> float:
    """Milliseconds within which 99.5 % of the answers came: the rest would take most of the picture."""
    return 1.2 * (percentile_ms(counts, 0.995) or BOUNDS_MS[0])


def _ratios(axes: Axes, rows: Sequence[Mapping[str, Any]]) -> None:
    """A dot for each part, and its interval as a line; beyond 1 it takes longer now."""
    for place, row in enumerate(rows):
        sure = row["low"] is not None and (row["low"] > 1 or row["high"] < 1)
        colour = ACCENT if sure else "#333333"
        if row["low"] is not None:
            axes.plot([row["low"], row["high"]], [place, place], "-", color=colour, linewidth=2)
        axes.plot(row["ratio"], place, "D" if sure else "o", color=colour, markersize=6)
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
    return f"{both_ends(row['name'], 22)}\n{row['from'][:10]}"
