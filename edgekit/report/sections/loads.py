"""Show the winners and the baseline under load: every run of LoadGen, and the highest rate that was confirmed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from edgekit.core.artifacts import Artifact
from edgekit.core.schema.loads import LoadRate, LoadRun, Loads, percentile_with_bounds
from edgekit.core.schema.result import Result
from edgekit.report.figures import (
    ACCENT,
    DARK,
    LIGHT,
    MID,
    STYLE,
    Picture,
    PlotStyle,
    close_figure,
    picture,
    plain_ticks,
)
from edgekit.report.formatting import count, milliseconds, milliseconds_with_bounds, percent
from edgekit.report.tables import Grid, Line, Table

MEBI = 2**20
RANKS = (50, 90, 95, 99)
SCENARIOS = {"single_stream": "single stream", "server": "server, Poisson", "offline": "offline"}
SUBJECT_STYLES: tuple[PlotStyle, ...] = (
    {"color": "#333333", "marker": "s"},
    {"color": DARK, "marker": "o"},
    {"color": MID, "marker": "^"},
    {"color": LIGHT, "marker": "D"},
)
SHOWN_SCENARIOS = {"single_stream": "single stream", "server": "server"}


def table(artifact: Artifact) -> Table:
    """Show every run of LoadGen of a benchmark, and the highest confirmed rates."""
    loads = artifact.metrics["loads"]
    rate_by_name = {row["name"]: row for row in loads["rates"]}
    rows = [_run(row, rate_by_name.get(row["name"])) for row in loads["runs"]]
    rows += [(row["name"], *[""] * 9, f"failed: {row['reason']}") for row in loads["failed"]]
    heads = ("model", "scenario", "offered, 1/s", "answered, 1/s", "p50, ms", "p95, ms", "p99, ms", "errors", "cores")
    return Table((*heads, "peak, MiB", ""), rows, _title(artifact) if rows else not_run_message(loads))


def not_run_message(loads: Loads) -> str:
    """Say that there was no load test and, if one was requested, why."""
    return f"no load test was run: {reason}" if (reason := loads.get("skipped")) else "no load test was run"


def rate_text(row: LoadRate) -> str:
    """Describe the highest rate that a search found and, if it is unreliable, why: `1,234/s (short: 1 of 600 s)`."""
    rate, reasons = row["rate_per_s"], "; ".join(caveats(row))
    text = f"no rate was confirmed, {row['why']}" if rate is None else f"{count(rate)}/s"
    return f"{text} ({reasons})" if reasons else text


def _run(row: LoadRun, best: LoadRate | None) -> tuple[str, ...]:
    offline = row["scenario"] == "offline"  # in this scenario, latencies only say how long the whole run took
    latencies = (
        ("",) * 3
        if offline
        else tuple(milliseconds_with_bounds(*percentile_with_bounds(row, rank)) for rank in (50, 95, 99))
    )
    return (
        row["name"],
        row["scenario"],
        "" if row["rate_per_s"] is None else count(row["rate_per_s"]),
        count(row["throughput_per_s"]),
        *latencies,
        percent(row["error_rate"]),
        f"{row['cpu_cores']:.2f}",
        "–" if row["peak_bytes"] is None else count(row["peak_bytes"] / MEBI),
        "; ".join(_notes(row, best)),
    )


def _notes(row: LoadRun, best: LoadRate | None) -> list[str]:
    notes = []
    if row["scenario"] == "server":
        notes.append("within the bound" if row["meets"] else "over the bound")
        if best:
            notes.append(f"highest rate: {rate_text(best)}")
    return notes + caveats(row)


def caveats(row: LoadRun | LoadRate) -> list[str]:
    """Return the reasons why a run or a rate is unreliable: it is too short or noisy."""
    short = [f"short: {row['why_short']}"] if row["short"] else []
    return short + ([f"noisy: {'; '.join(row['disturbed'])}"] if row["disturbed"] else [])


def _title(artifact: Artifact) -> str:
    loads = artifact.metrics["loads"]
    return (
        f"Raw sample to answer, {loads['seconds']:g} s each, one worker; p99 bound {loads['p99_bound_ms']:g} ms; "
        f"in brackets {100 * artifact.config['confidence']:g} % intervals"
    )


def section(result: Result, confidence: float) -> dict[str, Any] | None:
    """Return the entries `grids` and `failed` of the page, or None without a load test.

    `confidence` is that of the intervals.
    """
    loads = result["loads"]
    if loads.get("skipped"):
        return {"grids": [], "failed": [f"{not_run_message(loads)}."]}
    if not loads["runs"] and not loads["failed"]:
        return None
    grids = [rates_grid(loads), latencies_grid(loads, confidence), throughput_grid(loads)]
    failed = [f"{row['name']} failed under load: {row['reason']}" for row in loads["failed"]]
    return {"grids": [each for each in grids if each is not None], "failed": failed}


def rates_grid(loads: Loads) -> Grid | None:
    """Show the highest rate of Poisson arrivals whose p99 stays within the bound."""
    rows = loads["rates"]
    lines = [
        Line(
            (
                row["name"],
                count(row["rate_per_s"]),
                _confirmed_p99_text(row),
                str(len(row["trials"])),
                "; ".join([row["why"], *caveats(row)]),
            ),
            "out" if row["rate_per_s"] is None else "",
        )
        for row in rows
    ]
    columns = ("model", "highest rate, 1/s", "p99 there, ms", "trials", "how the search ended")
    caption = f"The highest rate of Poisson arrivals whose p99 stays within {loads['p99_bound_ms']:g} ms"
    return Grid(caption, columns, lines, frozenset(columns[1:4]), frozenset(columns[4:])) if rows else None


def latencies_grid(loads: Loads, confidence: float) -> Grid | None:
    """Show the percentiles of every run with their intervals, except for runs of the scenario `offline`.

    In this scenario, the percentiles depend only on the length of the run.
    """
    rows = [row for row in loads["runs"] if row["scenario"] != "offline"]
    lines = [
        Line(
            (
                row["name"],
                SCENARIOS[row["scenario"]],
                *(milliseconds_with_bounds(*percentile_with_bounds(row, rank)) for rank in RANKS),
                {None: "–", True: "within", False: "over"}[row["meets"]],
            )
        )
        for row in rows
    ]
    columns = ("model", "scenario", *(f"p{rank}, ms" for rank in RANKS), f"bound, {loads['p99_bound_ms']:g} ms")
    caption = (
        f"Latency from the intended start of a query to its answer; in brackets, the {100 * confidence:g} % interval "
        "if there are enough queries; the bound applies to the p99 of the server scenario"
    )
    return Grid(caption, columns, lines, frozenset(columns[2:])) if rows else None


def throughput_grid(loads: Loads) -> Grid | None:
    """Show requested and achieved throughput, with errors, processor time and memory."""
    rows = loads["runs"]
    lines = [
        Line(
            (
                row["name"],
                SCENARIOS[row["scenario"]],
                count(row["rate_per_s"]),
                count(row["throughput_per_s"]),
                percent(row["error_rate"]),
                f"{row['cpu_cores']:.2f}",
                count(None if row["peak_bytes"] is None else row["peak_bytes"] / MEBI),
                "; ".join(caveats(row)) or f"{count(row['queries'])} queries",
            )
        )
        for row in rows
    ]
    columns = (
        "model", "scenario", "offered, 1/s", "answered, 1/s", "errors", "cores used", "peak, MiB", "evidence",
    )  # fmt: skip
    caption = (
        f"MLPerf’s LoadGen {loads['loadgen']}, {loads['seconds']:g} s each, from raw sample to answer by one worker; "
        "short: less than MLPerf requires; noisy: other activity on the machine"
    )
    return Grid(caption, columns, lines, frozenset(columns[2:7]), frozenset(columns[7:])) if rows else None


def _confirmed_p99_text(row: LoadRate) -> str:
    """Return the worst p99 of the trials that confirmed the rate."""
    p99s_ms = [
        trial["p99_ms"] for trial in row["trials"] if trial["rate_per_s"] == row["rate_per_s"] and trial["meets"]
    ]
    return milliseconds(max(p99s_ms, default=None))


def figure(loads: Loads) -> Figure:
    """Draw every trial of the search on the left, with the bound and the highest confirmed rate.

    The percentiles with their intervals are drawn on the right.
    """
    names = list(dict.fromkeys(row["name"] for row in [*loads["rates"], *loads["runs"]]))
    looks = {name: SUBJECT_STYLES[place % len(SUBJECT_STYLES)] for place, name in enumerate(names)}
    with plt.rc_context(STYLE):
        figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 3.9), layout="constrained", width_ratios=(1.1, 1))
        _draw_rates(left, loads["rates"], loads["p99_bound_ms"], looks)
        _draw_percentiles(right, loads["runs"], looks)
        handles = [
            plt.Line2D([], [], linestyle="", markeredgecolor="#333333", label=name, **look)
            for name, look in looks.items()
        ]
        handles.append(plt.Line2D([], [], linestyle="", marker="o", markerfacecolor="white", color="#333333",
                                  label="hollow: over the bound"))  # fmt: skip
        bound = f"p99 bound, {loads['p99_bound_ms']:g} ms"
        handles.append(plt.Line2D([], [], linestyle="--", color=ACCENT, label=bound))
        figure.legend(handles=handles, loc="outside lower center", ncols=3, fontsize=8)
    return close_figure(figure)


def _draw_rates(axes: Axes, rates: Sequence[LoadRate], bound_ms: float, looks: dict[str, PlotStyle]) -> None:
    axes.set(xscale="log", yscale="log", xlabel="Poisson arrivals per second (log scale)", ylabel="p99, ms (log scale)")
    axes.set_title("p99 against the rate")
    for row in rates:
        for trial in row["trials"]:
            look = looks[row["name"]]
            fill = look["color"] if trial["meets"] else "white"
            axes.plot(trial["rate_per_s"], trial["p99_ms"], markerfacecolor=fill, markeredgecolor="#333333",
                      markersize=6, **look)  # fmt: skip
    if rates:  # leave room for the labels
        axes.set_ylim(top=axes.get_ylim()[1] * 4)
        axes.set_xlim(right=axes.get_xlim()[1] * 1.6)
    axes.axhline(bound_ms, color=ACCENT, linestyle="--", linewidth=1.2)
    middle = math.sqrt(math.prod(axes.get_xlim()))
    for place, row in enumerate(rates):
        if row["rate_per_s"] is not None:
            toward = 1 if row["rate_per_s"] < middle else -1  # the side of the line that has more room
            axes.axvline(row["rate_per_s"], color=looks[row["name"]]["color"], linewidth=1.5, linestyle=":")
            note = f"{row['name']}\nsustains {row['rate_per_s']:,.0f}/s{' (short)' if row['short'] else ''}"
            axes.annotate(note, (row["rate_per_s"], 0.98 - 0.14 * place),
                          xycoords=("data", "axes fraction"), xytext=(4 * toward, 0), textcoords="offset points",
                          fontsize=8, ha="left" if toward > 0 else "right", va="top")  # fmt: skip
    plain_ticks(axes)


def _draw_percentiles(axes: Axes, runs: Sequence[LoadRun], looks: dict[str, PlotStyle]) -> None:
    places = [(scenario, rank) for scenario in SHOWN_SCENARIOS for rank in RANKS]
    shown = [row for row in runs if row["scenario"] in SHOWN_SCENARIOS]
    for row in shown:
        look = looks[row["name"]]
        offset = (list(looks).index(row["name"]) - (len(looks) - 1) / 2) * 0.8 / len(looks)
        for rank in RANKS:
            x, (y, low, high) = places.index((row["scenario"], rank)) + offset, percentile_with_bounds(row, rank)
            if low is not None and high is not None:
                axes.vlines(x, low, high, color="#333333", linewidth=1)
            axes.plot(x, y, markeredgecolor="#333333", markersize=6, linestyle="", **look)
    axes.set(yscale="log", ylabel="latency, ms (log scale)")
    axes.set_xticks(range(len(places)), [f"p{rank}" for _, rank in places], fontsize=8)
    axes.axvline(len(RANKS) - 0.5, color="#999999", linewidth=0.8)
    for place, title in enumerate(SHOWN_SCENARIOS.values()):
        axes.annotate(title, ((place + 0.5) / 2, 1.0), xycoords="axes fraction", ha="center", va="top", fontsize=8.5)
    axes.set_title("Raw sample to answer, with intervals", pad=10)
    axes.grid(axis="x", visible=False)
    if shown:
        axes.set_ylim(top=axes.get_ylim()[1] * 1.6)
    plain_ticks(axes)


def pictures(loads: Loads) -> dict[str, Picture]:
    """Return the figure of the page, if there was a load test."""
    if not loads["runs"]:
        return {}
    rates = ", ".join(f"{row['name']} {count(row['rate_per_s'])}" for row in loads["rates"]) or "not searched"
    caption = (
        "Left: every trial in the search for the highest rate. Right: how long a query waits and takes. The p99 rises "
        "long before the worker is busy all the time, because arrivals come in bursts."
    )
    alt = f"p99 against the rate of arrivals; highest sustained rates per second: {rates}"
    return {"loads": picture(figure(loads), alt, caption)}


def sentences(result: Result) -> list[str]:
    """Return the highest confirmed rates, and a line for each failure."""
    loads = result["loads"]
    rates = ", ".join(f"{row['name']} {rate_text(row)}" for row in loads["rates"])
    lines = [f"Poisson arrivals sustained with a p99 within {loads['p99_bound_ms']:g} ms: {rates}"] if rates else []
    lines += [f"Load test failed: {row['name']}, {row['reason']}" for row in loads["failed"]]
    return [*lines, f"Load test: {not_run_message(loads)}"] if loads.get("skipped") else lines
