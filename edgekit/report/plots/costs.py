"""Was it worth it: the processor's time of so many calls, before, and with the walk that made them cheaper."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from edgekit.core.schema.cost import CallCost, Cost
from edgekit.report.costs import rounded
from edgekit.report.plots.style import ACCENT, COLOUR, DARK, STYLE, done, plain_ticks

AROUND = 100.0
"""The axis begins and ends at so many times fewer and more calls than pay for the walk."""
TITLES = {"never": "Never worth it", "perhaps never": "Perhaps never worth it"}
NEVER_CALLS = 1e7
"""Where there is no such number."""


def break_even(cost: Cost) -> Figure | None:
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
            _line(axes, one, calls, walk or 0.0, colour, style)
        if row["calls"] is not None:
            axes.axvline(row["calls"], color=ACCENT, linewidth=1.2, linestyle=":")
            axes.annotate(f"{rounded(row['calls'])} calls", (row["calls"], 0.03), xycoords=("data", "axes fraction"),
                          xytext=(4, 0), textcoords="offset points", fontsize=8.5, color=ACCENT)  # fmt: skip
        axes.set(xscale="log", yscale="log", xlabel="calls (log scale)", ylabel="CPU-seconds in all (log scale)")
        axes.set_title(TITLES.get(row["answer"], f"Worth it after {rounded(row['calls'])} calls"))
        axes.legend(loc="upper left", fontsize=8.5)
        plain_ticks(axes)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))  # of millions as well
    return done(figure)


def _line(axes: plt.Axes, one: CallCost, calls: np.ndarray, walk: float, colour: str, style: str) -> None:
    label = f"{one['name']}{', the run included' if walk else ''}"
    axes.plot(calls, walk + calls * one["cpu_s"]["value"], color=colour, linestyle=style, label=label)
    low, high = (walk + calls * max(one["cpu_s"][end], 0.0) for end in ("low", "high"))
    axes.fill_between(calls, low, high, color=colour, alpha=0.2, linewidth=0)
