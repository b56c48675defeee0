"""What the figures share: colours, markers, labels that do not touch, and a figure as a picture of the page.

Colours differ in greyscale too (Okabe & Ito, 2008, ordered by lightness), and never carry a meaning alone: a marker,
a hatch or a label says the same."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

Look = dict[str, Any]
"""Keywords of matplotlib's: colour, marker and the like."""
DARK, MID, LIGHT, ACCENT = "#0072B2", "#56B4E9", "#BFD9EA", "#D55E00"
COLOUR = {"tflite": "#0072B2", "openvino": "#D55E00", "onnx": "#56B4E9", "pytorch": "#333333"}
MARKER = {"fp32": "o", "fp16": "s", "int8": "^", "w8": "P", "dynamic": "v", "int4": "D", "int4_dense": "d",
          "int16x8": "*"}  # fmt: skip
FILL: dict[str, Any] = {"tflite": "full", "openvino": "none", "onnx": "bottom", "pytorch": "full"}
MOST_APART = 3000.0
"""Ends of an axis between which labels at 1, 2 and 5 of each decade do not run into one another."""
STYLE: Any = {
    "figure.dpi": 110,
    "font.size": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "legend.frameon": False,
}
NAMING: Any = {**STYLE, "text.parse_math": False}
"""For names of classes, which are no formulas; the numbers of a log axis are some."""
OFFSETS = tuple(
    (dx, dy) for dx, dy in ((0, 14), (0, -14), (16, 0), (-16, 0), (13, 11), (-13, 11), (13, -11), (-13, -11))
)
"""Of a text from its point, in points."""
CSS_PIXELS_PER_INCH = 96


def lowest(row: Mapping[str, Any]) -> float:
    """The accuracy that the samples leave open at the budget's confidence, a fraction."""
    accuracy = row["accuracy_validation"] if "accuracy_validation" in row else row["validation_accuracy"]
    return float(accuracy - (row["bound_pp"] - row["drop_pp"]) / 100)


def done(figure: Figure) -> Figure:
    """Closed, so that a notebook shows it once, as the cell's value."""
    plt.close(figure)
    return figure


def plain_ticks(axes: Axes) -> None:
    """1,000 rather than 10³, and no smaller ticks' labels."""
    for axis in (axes.xaxis, axes.yaxis):
        if axis.get_scale() == "log":
            low, high = axis.get_view_interval()
            axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < MOST_APART * low else (1,)))
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
            axis.set_minor_formatter(NullFormatter())


def label_curve_ends(
    axes: Axes, ends: Sequence[tuple[float, float]], names: Sequence[str], looks: Sequence[Look]
) -> None:
    """Names beside the axes, each with its marker and a thin line to its curve; `ends` are (x, y) of the data.

    `looks` hold `color` and `marker`. Call it when the limits of the axes are set.
    """
    shares = [max(0.0, float(axes.transAxes.inverted().transform(axes.transData.transform(end))[1])) for end in ends]
    for (x, y), share, name, look in zip(ends, spread_labels(shares), names, looks, strict=True):
        axes.annotate(
            "",
            (x, y),
            xytext=(1.03, share),
            textcoords="axes fraction",
            arrowprops={"arrowstyle": "-", "color": look["color"], "linewidth": 0.7, "shrinkA": 0, "shrinkB": 2},
        )
        axes.plot([1.04], [share], markersize=5, transform=axes.transAxes, clip_on=False, **look)
        axes.text(1.06, share, name, transform=axes.transAxes, va="center", fontsize=8.5)


def label_points(axes: Axes, marked: Sequence[tuple[float, float, str]], points: Sequence[tuple[float, float]]) -> None:
    """Ring the marked points, (x, y, text) of the data, and write each text where the fewest points and texts are near.

    Call it when the figure has been laid out: distances are those on the page.
    """
    at = [tuple(axes.transData.transform(point)) for point in points]
    pixels = axes.get_figure(root=True).dpi / 72  # type: ignore[union-attr]
    extent = axes.get_window_extent()
    texts: dict[tuple[float, float], list[str]] = {}
    for x, y, text in marked:
        texts.setdefault((x, y), []).append(text)
    for place, names in texts.items():
        x, y = axes.transData.transform(place)
        spots = [(x + pixels * dx, y + pixels * dy, dx, dy) for dx, dy in OFFSETS]
        inside = [
            spot for spot in spots
            if abs(spot[0] - (extent.x0 + extent.x1) / 2) < extent.width / 2 - 9 * pixels
            and abs(spot[1] - (extent.y0 + extent.y1) / 2) < extent.height / 2 - 6 * pixels
        ] or spots  # fmt: skip
        own = (x, y)
        _, _, dx, dy = max(
            inside,
            key=lambda spot: min((abs(spot[0] - a) + abs(spot[1] - b) for a, b in at if (a, b) != own), default=0),
        )
        axes.plot(*[[value] for value in place], "o", markersize=13, markerfacecolor="none", color="#333333", zorder=4)
        axes.annotate(", ".join(names), place, xytext=(dx, dy), textcoords="offset points", ha="center", va="center",
                      fontsize=9, weight="bold", zorder=5,
                      bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.7, "pad": 0.3})  # fmt: skip
        at.append((x + pixels * dx, y + pixels * dy))


def spread_labels(shares: Sequence[float], gap: float = 0.085) -> list[float]:
    """The same order from bottom to top, at least `gap` from one to the next, none above 1 unless there is no room."""
    order = sorted(range(len(shares)), key=lambda place: shares[place])
    found = list(shares)
    for below, place in zip(order, order[1:], strict=False):
        found[place] = max(found[place], found[below] + gap)
    limit = 1.0
    for place in reversed(order):
        found[place] = min(found[place], limit)
        limit = found[place] - gap
    return found


@dataclass(frozen=True)
class Picture:
    """One figure; `alt` says in words what it shows, `caption` how to read it."""

    source: str
    width: int
    height: int
    alt: str
    caption: str


def picture(figure: Figure, alt: str, caption: str) -> Picture:
    """The same bytes for the same figure: no date, and names that do not depend on chance."""
    written = io.BytesIO()
    with mpl.rc_context({"svg.fonttype": "path", "svg.hashsalt": "edgekit"}):
        figure.savefig(written, format="svg", metadata={"Date": None, "Creator": None})
    width, height = (math.ceil(side * CSS_PIXELS_PER_INCH) for side in figure.get_size_inches())
    source = "data:image/svg+xml;base64," + base64.b64encode(written.getvalue()).decode()
    return Picture(source, width, height, alt, caption)
