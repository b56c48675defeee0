"""The front of a study: each pair of objectives, with intervals and the budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from edgekit.report.plots.labels import label_points
from edgekit.report.plots.style import ACCENT, DARK, NAMING, Look, done, plain_ticks

MOST_PAIRS, MOST_TICKS = 6, 5
KINDS: dict[str, tuple[str, Look]] = {
    "over": ("over the budget", {"marker": "x", "color": "#888888", "markersize": 5, "alpha": 0.8}),
    "inside": ("inside the budget", {"marker": "o", "color": DARK, "markersize": 5, "fillstyle": "none"}),
    "front": ("on the front", {"marker": "D", "color": ACCENT, "markersize": 5.5, "markeredgecolor": "#333333",
                               "markeredgewidth": 0.6}),
}  # fmt: skip
"""Of a trial, drawn in this order: label and look; the marker says the same in greyscale."""


def search_front(
    axes: Sequence[Mapping[str, Any]], points: Sequence[Mapping[str, Any]], named: Mapping[int, str]
) -> Figure | None:
    """A panel for each pair of objectives; None without a complete trial, or with a single objective.

    `axes` are rows of `heading`, `log`, `maximize`, `limit` (None where there is none) and `limit_words`, one for each
    objective. `points` are rows of `number`, `kind` and by objective `values`, `lows` and `highs`, in the axes' units.
    `named` says in words what the trials are that are numbered in the figure. Further pairs than `MOST_PAIRS` are left
    out; those with the first objective come first.
    """
    pairs = list(combinations(range(len(axes)), 2))[:MOST_PAIRS]
    if not pairs or not points:
        return None
    wide = min(len(pairs), 2)
    high = -(-len(pairs) // wide)
    with plt.rc_context(NAMING):
        size = (9.2, 3.7 * high + (0.0 if len(pairs) % 2 == 0 or wide == 1 else 0.1)) if wide == 2 else (7.6, 4.6)
        figure, grid = plt.subplots(high, wide, figsize=size, layout="constrained", squeeze=False)
        rooms: list[Axes] = [room for line in grid for room in line]
        for room, (one, other) in zip(rooms, pairs, strict=False):
            x, y = (other, one) if axes[one]["maximize"] else (one, other)
            _panel(room, axes, points, x, y)
        handles = _handles(rooms[0], axes)
        words = "\n".join(f"{number}  {text}" for number, text in named.items())
        if len(rooms) > len(pairs):
            rest = rooms[len(pairs)]
            rest.set_axis_off()
            rest.legend(handles=handles, loc="upper left", fontsize=8.5, title=words, alignment="left")
        else:
            figure.legend(handles=handles, loc="outside lower center", ncols=3, fontsize=8.5, title=words)
        for room in rooms[len(pairs) + 1 :]:
            room.set_axis_off()
        figure.suptitle("Every complete trial, two objectives at a time", x=0.01, ha="left", fontsize=10.5,
                        fontweight="bold")  # fmt: skip
        figure.draw_without_rendering()  # labels are placed by the pixel
        for room, (one, other) in zip(rooms, pairs, strict=False):
            x, y = (other, one) if axes[one]["maximize"] else (one, other)
            marked = [(row["values"][x], row["values"][y], str(row["number"])) for row in points
                      if row["number"] in named]  # fmt: skip
            label_points(room, marked, [(row["values"][x], row["values"][y]) for row in points])
    return done(figure)


def _panel(room: Axes, axes: Sequence[Mapping[str, Any]], points: Sequence[Mapping[str, Any]], x: int, y: int) -> None:
    for kind, (_, look) in KINDS.items():
        mine = [row for row in points if row["kind"] == kind]
        if kind == "front":
            _stairs(room, axes, [row for row in points if row["kind"] != "over"], x, y)
            for row in mine:
                at = row["values"][x], row["values"][y]
                room.plot([row["lows"][x], row["highs"][x]], [at[1]] * 2, color=ACCENT, linewidth=1, zorder=2.5)
                room.plot([at[0]] * 2, [row["lows"][y], row["highs"][y]], color=ACCENT, linewidth=1, zorder=2.5)
        room.plot([row["values"][x] for row in mine], [row["values"][y] for row in mine], linestyle="none",
                  zorder=3, **look)  # fmt: skip
    room.margins(0.09)
    for place, scale, line in ((x, room.set_xscale, room.axvline), (y, room.set_yscale, room.axhline)):
        if axes[place]["log"]:
            scale("log")
        if axes[place]["limit"] is not None:
            line(axes[place]["limit"], color="#333333", linewidth=1.1, linestyle="--", zorder=1)
    plain_ticks(room)
    for axis in (room.xaxis, room.yaxis):
        if axis.get_scale() == "linear":
            axis.set_major_locator(MaxNLocator(MOST_TICKS))
    ends = {x: room.get_xlim(), y: room.get_ylim()}
    for place, span in ((x, room.axvspan), (y, room.axhspan)):
        limit = axes[place]["limit"]
        if limit is not None:
            span(*((ends[place][0], limit) if axes[place]["maximize"] else (limit, ends[place][1])), color="#eeeeee",
                 zorder=0)  # fmt: skip
    room.set(xlim=ends[x], ylim=ends[y])
    room.set(xlabel=_words(axes[x]), ylabel=_words(axes[y]))


def _stairs(room: Axes, axes: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]], x: int, y: int) -> None:
    """What is best in these two alone, as a step line: beyond it lies nothing that was tried."""
    sign = -1 if axes[y]["maximize"] else 1
    best: list[tuple[float, float]] = []
    for at in sorted({(row["values"][x], row["values"][y]) for row in rows}, key=lambda at: (at[0], sign * at[1])):
        if not best or sign * at[1] < sign * best[-1][1]:
            best.append(at)
    if len(best) > 1:
        room.step([at[0] for at in best], [at[1] for at in best], where="post", color=ACCENT, linewidth=0.9,
                  linestyle=":", zorder=2)  # fmt: skip


def _handles(room: Axes, axes: Sequence[Mapping[str, Any]]) -> list[Any]:
    found = [room.plot([], [], linestyle="none", label=label, **look)[0] for label, look in reversed(KINDS.values())]
    found += room.plot([], [], "-", color=ACCENT, linewidth=1, label="interval, of the front")
    found += room.plot([], [], ":", color=ACCENT, linewidth=0.9, label="best of these two alone")
    if limits := [each["limit_words"] for each in axes if each["limit"] is not None]:
        found += room.plot(
            [], [], "--", color="#333333", linewidth=1.1, label=f"budget (grey: beyond it): {', '.join(limits)}"
        )
    return found


def _words(axis: Mapping[str, Any]) -> str:
    return f"{axis['heading']} (log scale)" if axis["log"] else str(axis["heading"])
