"""What a call costs by variant, and when the run is paid for."""

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
from edgekit.report.figures import ACCENT, COLOUR, DARK, STYLE, Picture, done, picture, plain_ticks
from edgekit.report.formatting import capitalised, milliseconds, milliseconds_with_ends
from edgekit.report.tables import Column, Table, as_table, grid_of

MILLION = 1_000_000
AROUND = 100.0
"""The axis begins and ends at so many times fewer and more calls than pay for the run."""
TITLES = {"never": "Never worth it", "perhaps never": "Perhaps never worth it"}
NEVER_CALLS = 1e7
"""Where there is no such number."""


def cost_of(artifact: Artifact, given: Mapping[str, Any] | None = None) -> Cost:
    """Of a sealed benchmark, with the stages up to it; `given` is the section `benchmark.cost`, for its prices."""
    return costs.build(artifact, costs.chain_to(artifact), costs.prices_of(given))


def table(artifact: Artifact, given: Mapping[str, Any] | None = None) -> Table:
    """Every variant's cost of a call, the baseline first."""
    found = cost_of(artifact, given)
    return as_table(columns(found), found["calls"], caption(found))


def columns(found: Cost) -> list[Column[CallCost]]:
    """Processor time always; energy and money where they are known."""
    shown: list[Column[CallCost]] = [
        Column("variant", lambda row: row["name"], numeric=False),
        Column("CPU, ms a call", lambda row: _plain(row["cpu_s"], 1000)),
        Column("saved, ms", lambda row: _signed(row["saved_cpu_s"], 1000)),
    ]
    if found["energy"]:
        shown += [
            Column("energy, mJ a call", lambda row: _plain(row["joules"], 1000)),
            Column("with idle, mJ", lambda row: milliseconds(_times(row["joules_with_idle"], 1000))),
        ]
    if found["prices"] and any("money" in row for row in found["calls"]):
        unit = f"{found['prices']['currency']} a million calls"
        shown.append(Column(unit, lambda row: _plain(row.get("money"), MILLION)))
    return shown


def caption(found: Cost) -> str:
    """How it was measured, and why energy is not there."""
    how = capitalised(found["protocol"])
    said = f"{how}; in brackets {100 * found['confidence']:g} % intervals; saved: relative to the baseline"
    energy = found["energy"]
    if energy is None:
        return f"{said}. Energy is unknown: {found['energy_unknown']}"
    watts = energy["idle_watts"]
    idle = f"{watts['value']:.3g} W ({watts['low']:.3g}–{watts['high']:.3g})"
    return (
        f"{said}. Energy by {energy['source']}, {energy['rounds']} blocks of {energy['seconds']:g} s, without the "
        f"{idle} of the idle machine, but including what other processes use"
    )


def _plain(found: Estimate | None, by: float) -> str:
    if found is None:
        return "–"
    return milliseconds_with_ends(by * found["value"], by * found["low"], by * found["high"])


def _signed(found: Estimate | None, by: float) -> str:
    if found is None:
        return "–"
    return f"{by * found['value']:+.3g} ({by * found['low']:+.3g} to {by * found['high']:+.3g})"


def _times(value: float | None, by: float) -> float | None:
    return None if value is None else by * value


def section(result: Result) -> dict[str, Any]:
    """`grid` and `lines` of the page."""
    found = result["cost"]
    ships = set(result["winners"].values())
    grid = grid_of(caption(found), columns(found), found["calls"], lambda row: "ships" if row["name"] in ships else "")
    return {"grid": grid, "lines": costs.worth(found)}


def figure(cost: Cost) -> Figure | None:
    """CPU-seconds by number of calls, log scales, each with its interval; None where nothing ships or is known."""
    rows = [row for row in cost["break_even"] if row["unit"] == "CPU-seconds"]
    if not rows or rows[0]["walk"] is None:
        return None
    row, baseline = rows[0], cost["calls"][0]
    winner = next(each for each in cost["calls"] if each["name"] == row["name"])
    middle = row["calls"] or NEVER_CALLS
    calls = np.geomspace(max(middle / AROUND, 1), max(middle * AROUND, AROUND), 200)
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(7.2, 3.8), layout="constrained")
        for one, walk, colour, style in ((baseline, 0.0, COLOUR["pytorch"], "--"), (winner, row["walk"], DARK, "-")):
            _draw_line(axes, one, calls, walk or 0.0, colour, style)
        if row["calls"] is not None:
            axes.axvline(row["calls"], color=ACCENT, linewidth=1.2, linestyle=":")
            axes.annotate(
                f"{costs.rounded(row['calls'])} calls", (row["calls"], 0.03), xycoords=("data", "axes fraction"),
                xytext=(4, 0), textcoords="offset points", fontsize=8.5, color=ACCENT,
            )  # fmt: skip
        axes.set(xscale="log", yscale="log", xlabel="calls (log scale)", ylabel="CPU-seconds in all (log scale)")
        axes.set_title(TITLES.get(row["answer"], f"Worth it after {costs.rounded(row['calls'])} calls"))
        axes.legend(loc="upper left", fontsize=8.5)
        plain_ticks(axes)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))  # of millions as well
    return done(figure)


def _draw_line(axes: plt.Axes, one: CallCost, calls: np.ndarray, walk: float, colour: str, style: str) -> None:
    label = f"{one['name']}{', the run included' if walk else ''}"
    axes.plot(calls, walk + calls * one["cpu_s"]["value"], color=colour, linestyle=style, label=label)
    low, high = (walk + calls * max(one["cpu_s"][end], 0.0) for end in ("low", "high"))
    axes.fill_between(calls, low, high, color=colour, alpha=0.2, linewidth=0)


def pictures(result: Result) -> dict[str, Picture]:
    """The figure of the page; none where nothing ships, or where what the run has cost is not known."""
    found = result["cost"]
    drawn = figure(found)
    if drawn is None:
        return {}
    row = found["break_even"][0]
    caption = (
        "Processor time by number of calls, starting from the cost of the run. Where the lines cross, the run has paid "
        "for itself. Bands are the intervals of a call."
    )
    return {"break_even": picture(drawn, f"CPU-seconds by number of calls; {row['name']}: {row['text']}", caption)}
