"""The strip at the top of a notebook: the seven stages, and what the network has become so far."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Polygon

from edgekit.report.formatting import kilobytes, milliseconds
from edgekit.report.pipeline import PipelineStep
from edgekit.report.plots.style import DARK, STYLE, Look, done

UNKNOWN = "–"
ROWS = ("network", "size, kB", "accuracy", "p50, ms", "timed on")
LENGTH, POINT, HEIGHT, LINE, MIDDLE = 0.94, 0.10, 0.62, 0.34, 0.52
"""Of an arrow its length, tip and height, the pitch of the rows below, and where words stand, in columns."""
LOOKS: dict[str, Look] = {
    "done": {"facecolor": "#dddddd", "edgecolor": "#333333", "linewidth": 1},
    "here": {"facecolor": DARK, "edgecolor": "#333333", "linewidth": 1},
    "ahead": {"facecolor": "white", "edgecolor": "#777777", "linewidth": 1, "linestyle": "--"},
    "left out": {"facecolor": "white", "edgecolor": "#bbbbbb", "linewidth": 0.8, "hatch": "////"},
}
"""Told apart in greyscale by lightness, by the line and by the hatch."""


def pipeline(steps: Sequence[PipelineStep]) -> Figure:
    """The stages as arrows, the present one dark; below each that is done, the network that it left."""
    with plt.rc_context(STYLE):
        rows = ROWS if any(step.state == "done" for step in steps) else ()
        figure, axes = plt.subplots(figsize=(8.4, 0.5 + 0.25 * len(rows)), layout="constrained")
        for place, step in enumerate(steps):
            _arrow(axes, place, step)
            if step.state == "done":
                for row, text in enumerate(_values(step)):
                    axes.text(place + MIDDLE, -LINE * (row + 0.6), text, ha="center", va="center", fontsize=8)
        for row, name in enumerate(rows):
            axes.text(-0.08, -LINE * (row + 0.6), name, ha="right", va="center", fontsize=8, color="#555555")
        axes.set(xlim=(-0.85, len(steps) + 0.05), ylim=(-LINE * len(rows) - 0.05, HEIGHT + 0.2))
        axes.axis("off")
    return done(figure)


def _arrow(axes: Axes, place: int, step: PipelineStep) -> None:
    low, high, end = 0.15, 0.15 + HEIGHT, place + LENGTH
    corners = [(place, low), (end, low), (end + POINT, (low + high) / 2), (end, high), (place, high)]
    notch = [(place + POINT, (low + high) / 2)] if place else []
    axes.add_patch(Polygon([*corners, *notch], closed=True, **LOOKS[step.state]))
    words: Look = {"color": "white", "weight": "bold"} if step.state == "here" else {"color": "#333333"}
    name = f"{place + 1:02d} {step.stage}" if step.state != "left out" else f"{step.stage}\nnot in this run"
    box = {"facecolor": "white", "edgecolor": "none", "pad": 1.0} if step.state == "left out" else None
    axes.text(place + MIDDLE, (low + high) / 2, name, ha="center", va="center", fontsize=8, bbox=box, **words)


def _values(step: PipelineStep) -> list[str]:
    """What stands below a stage that is done, in the order of ROWS."""
    accuracy = UNKNOWN if step.accuracy is None else f"{step.accuracy:.1%}".replace("%", " %")
    return [step.what, kilobytes(step.bytes), accuracy, milliseconds(step.p50_ms), step.timed_on]
