"""Show the cost of a call of each variant, and after how many calls the run has paid for itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from edgekit.core.artifacts import Artifact
from edgekit.core.schema.cost import CallCost, Cost, Estimate
from edgekit.core.schema.result import Result
from edgekit.report import costs
from edgekit.report.figures import ACCENT, DARK, STYLE, TARGET_COLOURS, Picture, close_figure, picture, plain_ticks
from edgekit.report.formatting import capitalised, milliseconds, milliseconds_with_bounds
from edgekit.report.tables import Column, Table, build_table, grid_from_columns

MILLION = 1_000_000
AXIS_FACTOR = 100.0
"""If n calls pay for the run, the axis goes from n divided by this factor to n times this factor."""
TITLES = {"never": "Never worth it", "perhaps never": "Perhaps never worth it"}
DEFAULT_CALLS = 1e7
"""The middle of the axis if no number of calls pays for the run."""


def cost_of(artifact: Artifact, prices: Mapping[str, Any] | None = None) -> Cost:
    """Return the cost of a sealed benchmark and the stages before it.

    `prices` is the section `benchmark.cost` of a config.
    """
    return costs.cost_of_run(artifact, costs.ancestry(artifact), costs.prices_of(prices))


def table(artifact: Artifact, prices: Mapping[str, Any] | None = None) -> Table:
    """Show the cost of a call of every variant, the baseline first."""
    cost = cost_of(artifact, prices)
    return build_table(columns(cost), cost["calls"], caption(cost))


def columns(cost: Cost) -> list[Column[CallCost]]:
    """Return columns for processor time, and for energy and money if they are known."""
    shown: list[Column[CallCost]] = [
        Column("variant", lambda row: row["name"], numeric=False),
        Column("CPU, ms a call", lambda row: _plain(row["cpu_s"], 1000)),
        Column("saved, ms", lambda row: _signed(row["saved_cpu_s"], 1000)),
    ]
    if cost["energy"]:
        shown += [
            Column("energy, mJ a call", lambda row: _plain(row["joules"], 1000)),
            Column("with idle, mJ", lambda row: milliseconds(_times(row["joules_with_idle"], 1000))),
        ]
    if cost["prices"] and any("money" in row for row in cost["calls"]):
        unit = f"{cost['prices']['currency']} a million calls"
        shown.append(Column(unit, lambda row: _plain(row.get("money"), MILLION)))
    return shown


def caption(cost: Cost) -> str:
    """Say how the costs were measured and, if the energy is unknown, why."""
    protocol = capitalised(cost["protocol"])
    text = f"{protocol}; in brackets {100 * cost['confidence']:g} % intervals; saved: relative to the baseline"
    energy = cost["energy"]
    if energy is None:
        return f"{text}. Energy is unknown: {cost['energy_unknown']}"
    watts = energy["idle_watts"]
    idle = f"{watts['value']:.3g} W ({watts['low']:.3g}–{watts['high']:.3g})"
    return (
        f"{text}. Energy by {energy['source']}, {energy['rounds']} blocks of {energy['seconds']:g} s, without the "
        f"{idle} of the idle machine, but including what other processes use"
    )


def _plain(estimate: Estimate | None, factor: float) -> str:
    if estimate is None:
        return "–"
    return milliseconds_with_bounds(factor * estimate["value"], factor * estimate["low"], factor * estimate["high"])


def _signed(estimate: Estimate | None, factor: float) -> str:
    if estimate is None:
        return "–"
    return f"{factor * estimate['value']:+.3g} ({factor * estimate['low']:+.3g} to {factor * estimate['high']:+.3g})"


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else factor * value


def section(result: Result) -> dict[str, Any]:
    """Return the entries `grid` and `lines` of the page."""
    cost = result["cost"]
    ships = set(result["winners"].values())
    grid = grid_from_columns(
        caption(cost), columns(cost), cost["calls"], lambda row: "ships" if row["name"] in ships else ""
    )
    return {"grid": grid, "lines": costs.worth(cost)}


def figure(cost: Cost) -> Figure | None:
    """Draw CPU-seconds by number of calls, with intervals.

    Returns None if nothing ships or the cost of the run is unknown.
    """
    rows = [row for row in cost["break_even"] if row["unit"] == "CPU-seconds"]
    if not rows or rows[0]["run"] is None:
        return None
    row, baseline = rows[0], cost["calls"][0]
    winner = next(each for each in cost["calls"] if each["name"] == row["name"])
    middle = row["calls"] or DEFAULT_CALLS
    calls = np.geomspace(max(middle / AXIS_FACTOR, 1), max(middle * AXIS_FACTOR, AXIS_FACTOR), 200)
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(7.2, 3.8), layout="constrained")
        for call, run_cpu_s, colour, style in (
            (baseline, 0.0, TARGET_COLOURS["pytorch"], "--"),
            (winner, row["run"], DARK, "-"),
        ):
            _draw_line(axes, call, calls, run_cpu_s or 0.0, colour, style)
        if row["calls"] is not None:
            axes.axvline(row["calls"], color=ACCENT, linewidth=1.2, linestyle=":")
            axes.annotate(
                f"{costs.rounded_calls(row['calls'])} calls", (row["calls"], 0.03), xycoords=("data", "axes fraction"),
                xytext=(4, 0), textcoords="offset points", fontsize=8.5, color=ACCENT,
            )  # fmt: skip
        axes.set(xscale="log", yscale="log", xlabel="calls (log scale)", ylabel="CPU-seconds in all (log scale)")
        axes.set_title(TITLES.get(row["answer"], f"Worth it after {costs.rounded_calls(row['calls'])} calls"))
        axes.legend(loc="upper left", fontsize=8.5)
        plain_ticks(axes)
        # Millions, too, are written with thousands separators.
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    return close_figure(figure)


def _draw_line(axes: plt.Axes, call: CallCost, calls: np.ndarray, run_cpu_s: float, colour: str, style: str) -> None:
    label = f"{call['name']}{', the run included' if run_cpu_s else ''}"
    axes.plot(calls, run_cpu_s + calls * call["cpu_s"]["value"], color=colour, linestyle=style, label=label)
    low, high = (run_cpu_s + calls * max(call["cpu_s"][end], 0.0) for end in ("low", "high"))
    axes.fill_between(calls, low, high, color=colour, alpha=0.2, linewidth=0)


def pictures(result: Result) -> dict[str, Picture]:
    """Return the figure of the page, if there is one."""
    cost = result["cost"]
    drawn_figure = figure(cost)
    if drawn_figure is None:
        return {}
    row = cost["break_even"][0]
    caption = (
        "Processor time by number of calls, starting from the cost of the run. Where the lines cross, the run has paid "
        "for itself. Bands are the intervals of a call."
    )
    return {
        "break_even": picture(drawn_figure, f"CPU-seconds by number of calls; {row['name']}: {row['text']}", caption)
    }
