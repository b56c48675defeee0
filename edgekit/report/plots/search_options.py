"""What the options of a study did: their importances, and every trial as a line through them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from edgekit.report.plots.style import ACCENT, DARK, NAMING, done

MOST_OPTIONS = 14
MOST_AXES = 9
LINES: dict[str, tuple[str, dict[str, Any]]] = {
    "rest": ("ended by a cheap rung, or failed", {"color": "#bbbbbb", "linewidth": 0.7, "linestyle": ":"}),
    "over": ("complete, over the budget", {"color": "#999999", "linewidth": 0.8, "linestyle": "--"}),
    "inside": ("inside the budget", {"color": DARK, "linewidth": 0.9, "alpha": 0.75}),
    "front": ("on the front", {"color": ACCENT, "linewidth": 2.2, "marker": "D", "markersize": 4}),
}
LONGEST = 22
MANY = 8
"""Lines of a kind, above which they are thinner."""
NONE_AT = -0.08


def search_importances(
    titles: Sequence[str], options: Sequence[str], rows: Mapping[str, Mapping[str, Mapping[str, float]]]
) -> Figure | None:
    """A panel for each objective, a bar for each option, None without a row.

    `rows` by title and option have `share`, `low` and `high` as fractions; an option without a row in any panel is
    left out there, and "cannot be told" stands in its place.
    """
    shown = [name for name in options if any(name in rows.get(title, {}) for title in titles)][:MOST_OPTIONS]
    panels = [title for title in titles if rows.get(title)]
    if not shown or not panels:
        return None
    with plt.rc_context(NAMING):
        figure, grid = plt.subplots(
            1, len(panels), figsize=(max(6.4, 1.4 + 2.6 * len(panels)), 1.3 + 0.34 * len(shown)),
            layout="constrained", sharey=True, squeeze=False,
        )  # fmt: skip
        for axes, title in zip(grid[0], panels, strict=True):
            for place, name in enumerate(shown):
                _bar(axes, place, rows[title].get(name))
            axes.set_xlim(0, 1)
            axes.set_xticks([0, 0.25, 0.5, 0.75])
            axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
            axes.grid(visible=False, axis="y")
            axes.set_title(title)
        grid[0][0].set_yticks(range(len(shown)), [_short(name, 34) for name in shown])
        grid[0][0].set_ylim(len(shown) - 0.4, -0.6)
        figure.supxlabel("share of the variance that the option explains alone; line: with other quarters of the "
                         "trials left out", fontsize=8.5)  # fmt: skip
    return done(figure)


def search_parallel(axes: Sequence[Mapping[str, Any]], lines: Sequence[Mapping[str, Any]]) -> Figure | None:
    """Each trial as a line through its options and objectives; None without a trial.

    `axes` are rows of `heading`, `ticks`, (place, text) with places from 0 to 1, and `option`, whether it is one.
    `lines` are rows of `kind` and `places`, a place for each axis, or None where the trial has no such option or value.
    """
    if not lines or len(axes) < 2:
        return None
    with plt.rc_context(NAMING):
        figure, room = plt.subplots(figsize=(max(7.6, 1.08 * len(axes) + 0.6), 4.6), layout="constrained")
        room.set_axis_off()
        for kind, (label, look) in LINES.items():
            mine = [row for row in lines if row["kind"] == kind]
            look = {**look, "linewidth": look["linewidth"] * (0.65 if len(mine) > MANY else 1)}
            for row in mine:
                _through(room, row["places"], [axis["option"] for axis in axes], look)
            if mine:
                room.plot([], [], label=f"{label} ({len(mine)})", **look)
        for place, axis in enumerate(axes):
            room.plot([place, place], [0, 1], color="#333333", linewidth=1, zorder=3)
            for at, text in axis["ticks"]:
                room.plot([place - 0.03, place + 0.03], [at, at], color="#333333", linewidth=1, zorder=3)
                room.annotate(
                    _short(text, LONGEST), (place, at), xytext=(5, 0), textcoords="offset points", va="center",
                    fontsize=7.5, zorder=5, bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.6},
                )  # fmt: skip
            room.annotate(_wrapped(axis["heading"]), (place, 1), xytext=(0, 9), textcoords="offset points", ha="center",
                          va="bottom", fontsize=8.5, weight="bold")  # fmt: skip
            if axis["option"] and any(row["places"][place] is None for row in lines):
                room.annotate("none", (place, -0.11), ha="center", va="center", fontsize=7.5, color="#555555")
        room.set(xlim=(-0.35, len(axes) - 0.3), ylim=(-0.15, 1.0))
        figure.legend(loc="outside lower center", ncols=2, fontsize=8.5)
    return done(figure)


def _bar(axes: Axes, place: int, row: Mapping[str, float] | None) -> None:
    if row is None:
        axes.text(0.02, place, "cannot be told", va="center", fontsize=7.5, color="#555555", style="italic")
        return
    axes.barh(place, row["share"], height=0.62, color=DARK)
    axes.plot([row["low"], row["high"]], [place, place], color="#333333", linewidth=1.6)
    axes.plot([row["low"], row["high"]], [place, place], "|", color="#333333", markersize=6)
    axes.annotate(f"{row['share']:.0%}", (max(row["share"], row["high"]), place), xytext=(4, 0),
                  textcoords="offset points", va="center", fontsize=8)  # fmt: skip


def _through(room: Axes, places: Sequence[float | None], options: Sequence[bool], look: Mapping[str, Any]) -> None:
    """Where it has no such option the line passes below all axes; where it has no value it ends."""
    missing = [NONE_AT if option else float("nan") for option in options]
    heights = [lack if each is None else each for each, lack in zip(places, missing, strict=True)]
    room.plot(range(len(places)), heights, zorder=2, **look)


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most // 2]}…{text[-most // 2 + 1 :]}"


def _wrapped(heading: str) -> str:
    """In lines of no more than some 14 letters, broken at blanks, dots and underscores."""
    lines = [""]
    for part in heading.replace("_", "_\u200b").replace(" ", " \u200b").replace(".", ".\u200b").split("\u200b"):
        if lines[-1] and len(lines[-1]) + len(part.strip()) > 14:
            lines.append("")
        lines[-1] += part
    return "\n".join(line.strip() for line in lines)
