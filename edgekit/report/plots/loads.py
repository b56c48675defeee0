"""What a load does to latency: p99 against the rate, and percentiles by scenario."""

from __future__ import annotations

import math
from collections.abc import Sequence

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from edgekit.core.schema.loads import LoadRate, LoadRun, Loads, ends_ms
from edgekit.report.plots.style import ACCENT, DARK, LIGHT, MID, STYLE, Look, done, plain_ticks

LOOKS: tuple[Look, ...] = (
    {"color": "#333333", "marker": "s"},
    {"color": DARK, "marker": "o"},
    {"color": MID, "marker": "^"},
    {"color": LIGHT, "marker": "D"},
)
RANKS = (50, 90, 95, 99)
SHOWN = {"single_stream": "single stream", "server": "server"}


def loads(found: Loads) -> Figure:
    """Left: every trial of the search, the bound and the highest rate confirmed. Right: percentiles, with intervals."""
    names = list(dict.fromkeys(row["name"] for row in [*found["rates"], *found["runs"]]))
    looks = {name: LOOKS[place % len(LOOKS)] for place, name in enumerate(names)}
    with plt.rc_context(STYLE):
        figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 3.9), layout="constrained", width_ratios=(1.1, 1))
        _rates(left, found["rates"], found["p99_bound_ms"], looks)
        _percentiles(right, found["runs"], looks)
        handles = [
            plt.Line2D([], [], linestyle="", markeredgecolor="#333333", label=name, **look)
            for name, look in looks.items()
        ]
        handles.append(plt.Line2D([], [], linestyle="", marker="o", markerfacecolor="white", color="#333333",
                                  label="hollow: over the bound"))  # fmt: skip
        bound = f"p99 bound, {found['p99_bound_ms']:g} ms"
        handles.append(plt.Line2D([], [], linestyle="--", color=ACCENT, label=bound))
        figure.legend(handles=handles, loc="outside lower center", ncols=3, fontsize=8)
    return done(figure)


def _rates(axes: Axes, rates: Sequence[LoadRate], bound_ms: float, looks: dict[str, Look]) -> None:
    axes.set(xscale="log", yscale="log", xlabel="Poisson arrivals per second (log scale)", ylabel="p99, ms (log scale)")
    axes.set_title("p99 against the rate")
    for row in rates:
        for trial in row["trials"]:
            look = looks[row["name"]]
            fill = look["color"] if trial["meets"] else "white"
            axes.plot(trial["rate_per_s"], trial["p99_ms"], markerfacecolor=fill, markeredgecolor="#333333",
                      markersize=6, **look)  # fmt: skip
    if rates:  # room above for what is written there
        axes.set_ylim(top=axes.get_ylim()[1] * 4)
        axes.set_xlim(right=axes.get_xlim()[1] * 1.6)
    axes.axhline(bound_ms, color=ACCENT, linestyle="--", linewidth=1.2)
    middle = math.sqrt(math.prod(axes.get_xlim()))
    for place, row in enumerate(rates):
        if row["rate_per_s"] is not None:
            toward = 1 if row["rate_per_s"] < middle else -1  # the side of its line that has room
            axes.axvline(row["rate_per_s"], color=looks[row["name"]]["color"], linewidth=1.5, linestyle=":")
            held = f"{row['name']}\nholds {row['rate_per_s']:,.0f}/s{' (short)' if row['short'] else ''}"
            axes.annotate(held, (row["rate_per_s"], 0.98 - 0.14 * place),
                          xycoords=("data", "axes fraction"), xytext=(4 * toward, 0), textcoords="offset points",
                          fontsize=8, ha="left" if toward > 0 else "right", va="top")  # fmt: skip
    plain_ticks(axes)


def _percentiles(axes: Axes, runs: Sequence[LoadRun], looks: dict[str, Look]) -> None:
    places = [(scenario, rank) for scenario in SHOWN for rank in RANKS]
    shown = [row for row in runs if row["scenario"] in SHOWN]
    for row in shown:
        look = looks[row["name"]]
        beside = (list(looks).index(row["name"]) - (len(looks) - 1) / 2) * 0.8 / len(looks)
        for rank in RANKS:
            x, (y, low, high) = places.index((row["scenario"], rank)) + beside, ends_ms(row, rank)
            if low is not None and high is not None:
                axes.vlines(x, low, high, color="#333333", linewidth=1)
            axes.plot(x, y, markeredgecolor="#333333", markersize=6, linestyle="", **look)
    axes.set(yscale="log", ylabel="latency, ms (log scale)")
    axes.set_xticks(range(len(places)), [f"p{rank}" for _, rank in places], fontsize=8)
    axes.axvline(len(RANKS) - 0.5, color="#999999", linewidth=0.8)
    for place, title in enumerate(SHOWN.values()):
        axes.annotate(title, ((place + 0.5) / 2, 1.0), xycoords="axes fraction", ha="center", va="top", fontsize=8.5)
    axes.set_title("Raw sample to answer, with intervals", pad=10)
    axes.grid(axis="x", visible=False)
    if shown:
        axes.set_ylim(top=axes.get_ylim()[1] * 1.6)
    plain_ticks(axes)
