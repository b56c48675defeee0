"""The look that the figures share, and what closes them."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

Row = dict[str, Any]

DARK, MID, LIGHT, ACCENT = "#0072B2", "#56B4E9", "#BFD9EA", "#D55E00"
COLOUR = {"tflite": "#0072B2", "openvino": "#D55E00", "onnx": "#56B4E9", "pytorch": "#333333"}
MARKER = {"fp32": "o", "fp16": "s", "int8": "^", "w8": "P", "dynamic": "v"}
FILL: dict[str, Any] = {"tflite": "full", "openvino": "none", "onnx": "bottom", "pytorch": "full"}
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


def lowest(row: Row) -> float:
    """The accuracy that the samples leave open at the budget's confidence, a fraction."""
    accuracy = row["accuracy_validation"] if "accuracy_validation" in row else row["validation_accuracy"]
    return float(accuracy - (row["bound_pp"] - row["drop_pp"]) / 100)


def done(figure: Figure) -> Figure:
    """Closed, so that a notebook shows it once, as the cell's value."""
    plt.close(figure)
    return figure
