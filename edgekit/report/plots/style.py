"""The look that the figures share, and what closes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
