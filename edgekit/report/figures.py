"""Helpers for all figures: colours, markers, labels that do not overlap, and the conversion to a picture for the page.

Colours also differ in greyscale (Okabe & Ito, 2008, ordered by lightness), and never carry a meaning alone: a marker, a
hatch or a label always says the same.
"""

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

PlotStyle = dict[str, Any]
"""Keyword arguments for Matplotlib, such as colour and marker."""
DARK, MID, LIGHT, ACCENT = "#0072B2", "#56B4E9", "#BFD9EA", "#D55E00"
TARGET_COLOURS = {"tflite": "#0072B2", "openvino": "#D55E00", "onnx": "#56B4E9", "pytorch": "#333333"}
PRECISION_MARKERS = {"fp32": "o", "fp16": "s", "int8": "^", "w8": "P", "dynamic": "v", "int4": "D", "int4_dense": "d",
          "int16x8": "*"}  # fmt: skip
TARGET_FILLS: dict[str, Any] = {"tflite": "full", "openvino": "none", "onnx": "bottom", "pytorch": "full"}
MAX_LABELLED_RANGE = 3000.0
"""If the largest value of an axis is at most this many times the smallest, there is room for labels at 1, 2 and 5 of
each decade."""
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
PLAIN_TEXT_STYLE: Any = {**STYLE, "text.parse_math": False}
"""Settings for text such as class names, which must not be read as formulas, unlike the labels of a log axis."""
LABEL_OFFSETS = tuple(
    (dx, dy) for dx, dy in ((0, 14), (0, -14), (16, 0), (-16, 0), (13, 11), (-13, 11), (13, -11), (-13, -11))
)
"""Offsets of a label from its point, in points."""
CSS_PIXELS_PER_INCH = 96


def lowest_accuracy(row: Mapping[str, Any]) -> float:
    """Return the lowest accuracy (a fraction) that the samples do not rule out at the budget's confidence."""
    accuracy = row["accuracy_validation"] if "accuracy_validation" in row else row["validation_accuracy"]
    return float(accuracy - (row["bound_pp"] - row["drop_pp"]) / 100)


def close_figure(figure: Figure) -> Figure:
    """Close a figure, so that a notebook shows it only once, as the value of its cell."""
    plt.close(figure)
    return figure


def plain_ticks(axes: Axes) -> None:
    """Label log axes with 1,000 instead of 10³, and leave minor ticks without labels."""
    for axis in (axes.xaxis, axes.yaxis):
        if axis.get_scale() == "log":
            low, high = axis.get_view_interval()
            axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < MAX_LABELLED_RANGE * low else (1,)))
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
            axis.set_minor_formatter(NullFormatter())


def label_curve_ends(
    axes: Axes, ends: Sequence[tuple[float, float]], names: Sequence[str], styles: Sequence[PlotStyle]
) -> None:
    """Write names beside the axes, each with its marker and a thin line to its curve.

    Call it after setting the limits of the axes.

    Parameters
    ----------
    ends
        The last point (x, y) of each curve, in data units.
    styles
        `color` and `marker` of each curve.
    """
    shares = [max(0.0, float(axes.transAxes.inverted().transform(axes.transData.transform(end))[1])) for end in ends]
    for (x, y), share, name, style in zip(ends, spread_labels(shares), names, styles, strict=True):
        axes.annotate(
            "",
            (x, y),
            xytext=(1.03, share),
            textcoords="axes fraction",
            arrowprops={"arrowstyle": "-", "color": style["color"], "linewidth": 0.7, "shrinkA": 0, "shrinkB": 2},
        )
        axes.plot([1.04], [share], markersize=5, transform=axes.transAxes, clip_on=False, **style)
        axes.text(1.06, share, name, transform=axes.transAxes, va="center", fontsize=8.5)


def label_points(
    axes: Axes, labelled: Sequence[tuple[float, float, str]], points: Sequence[tuple[float, float]]
) -> None:
    """Circle points and write each text where other points and texts are farthest away.

    Call it after laying out the figure, because distances are those on the page.

    Parameters
    ----------
    labelled
        The points to label, as (x, y, text) in data units.
    points
        All points.
    """
    pixel_points = [tuple(axes.transData.transform(point)) for point in points]
    pixels = axes.get_figure(root=True).dpi / 72  # type: ignore[union-attr]
    extent = axes.get_window_extent()
    texts: dict[tuple[float, float], list[str]] = {}
    for x, y, text in labelled:
        texts.setdefault((x, y), []).append(text)
    for place, names in texts.items():
        x, y = axes.transData.transform(place)
        candidates = [(x + pixels * dx, y + pixels * dy, dx, dy) for dx, dy in LABEL_OFFSETS]
        inside_axes = [
            candidate for candidate in candidates
            if abs(candidate[0] - (extent.x0 + extent.x1) / 2) < extent.width / 2 - 9 * pixels
            and abs(candidate[1] - (extent.y0 + extent.y1) / 2) < extent.height / 2 - 6 * pixels
        ] or candidates  # fmt: skip
        own_point = (x, y)
        _, _, dx, dy = max(
            inside_axes,
            key=lambda candidate: min(
                (abs(candidate[0] - a) + abs(candidate[1] - b) for a, b in pixel_points if (a, b) != own_point),
                default=0,
            ),
        )
        axes.plot(*[[value] for value in place], "o", markersize=13, markerfacecolor="none", color="#333333", zorder=4)
        axes.annotate(", ".join(names), place, xytext=(dx, dy), textcoords="offset points", ha="center", va="center",
                      fontsize=9, weight="bold", zorder=5,
                      bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.7, "pad": 0.3})  # fmt: skip
        pixel_points.append((x + pixels * dx, y + pixels * dy))


def spread_labels(shares: Sequence[float], gap: float = 0.085) -> list[float]:
    """Move labels at least `gap` apart. Their order is kept, and none is moved above 1 unless there is no room."""
    order = sorted(range(len(shares)), key=lambda index: shares[index])
    positions = list(shares)
    for below, index in zip(order, order[1:], strict=False):
        positions[index] = max(positions[index], positions[below] + gap)
    limit = 1.0
    for index in reversed(order):
        positions[index] = min(positions[index], limit)
        limit = positions[index] - gap
    return positions


@dataclass(frozen=True)
class Picture:
    """A figure for the page. `alt` says what it shows, and `caption` how to read it."""

    source: str
    width: int
    height: int
    alt: str
    caption: str


def picture(figure: Figure, alt: str, caption: str) -> Picture:
    """Convert a figure to a picture without a date or random names, so that the same figure always gives the same
    bytes.
    """
    buffer = io.BytesIO()
    with mpl.rc_context({"svg.fonttype": "path", "svg.hashsalt": "edgekit"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    width, height = (math.ceil(side * CSS_PIXELS_PER_INCH) for side in figure.get_size_inches())
    source = "data:image/svg+xml;base64," + base64.b64encode(buffer.getvalue()).decode()
    return Picture(source, width, height, alt, caption)
