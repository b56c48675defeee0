"""What training, pruning and quantization did to the accuracy."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from edgekit.core.schema.pruning import PruneStep
from edgekit.core.schema.quantization import LayerSensitivity
from edgekit.core.schema.training import Epoch
from edgekit.report.plots.labels import label_curve_ends
from edgekit.report.plots.style import ACCENT, DARK, MID, STYLE, done, lowest

LOOKS = (("#333333", ":", "o"), (ACCENT, "-", "s"), (DARK, "--", "^"), (MID, "-.", "D"), ("#009E73", "-", "v"))
"""Colour, line and marker of each curve."""


def learning_curves(curves: Mapping[str, Sequence[Epoch]], reference: tuple[str, float] | None = None) -> Figure:
    """Validation accuracy by epoch, a line for each training; `reference` is drawn as a level."""
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(7.2, 3.0), layout="constrained")
        for rows, (colour, line, marker) in zip(curves.values(), itertools.cycle(LOOKS), strict=False):
            epochs = [row["epoch"] for row in rows]
            values = [row["validation_accuracy"] for row in rows]
            every = max(1, len(rows) // 12)
            axes.plot(epochs, values, line, color=colour, marker=marker, markersize=3.5, markevery=every)
        if reference:
            axes.axhline(reference[1], color="#333333", linewidth=1, linestyle=(0, (8, 3)))
        values = [row["validation_accuracy"] for rows in curves.values() for row in rows]
        top = max([*values, reference[1] if reference else 0])
        low = sorted(values)[len(values) // 4]
        axes.set(xlabel="epoch", ylabel="validation accuracy", ylim=(max(0, low - 0.02), min(1.002, top + 0.01)))
        axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=1))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_title("Validation accuracy by epoch")
        last = max(rows[-1]["epoch"] for rows in curves.values())
        axes.set_xlim(min(1, last - 1), last)
        ends = {name: (rows[-1]["epoch"], rows[-1]["validation_accuracy"]) for name, rows in curves.items()}
        looks = [
            {"color": colour, "marker": marker}
            for _, (colour, _, marker) in zip(curves, itertools.cycle(LOOKS), strict=False)
        ]
        if reference:
            ends[reference[0]] = (last, reference[1])
            looks.append({"color": "#333333", "marker": "_"})
        label_curve_ends(axes, list(ends.values()), list(ends), looks)
    return done(figure)


def pruning(structured: Sequence[PruneStep], unstructured: Sequence[PruneStep], floor: float) -> Figure:
    """Accuracy against MACs (channels removed) and against sparsity (weights zeroed); the kept step is ringed.

    A whisker hangs down to the accuracy that the samples leave open: it must not cross the line of the budget.
    """
    with plt.rc_context(STYLE):
        figure, (left, right) = plt.subplots(1, 2, figsize=(7.6, 3.1), layout="constrained", sharey=True)
        _steps(left, [row["macs"] / 1e6 for row in structured], structured, floor)
        left.set(xlabel="multiply-adds, millions", ylabel="validation accuracy", xlim=(0, None))
        left.set_title("Channels removed")
        left.invert_xaxis()
        _steps(right, [row["sparsity"] for row in unstructured], unstructured, floor)
        right.set(xlabel="zero weights, share")
        right.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        right.set_title("Weights zeroed")
        left.yaxis.set_major_formatter(PercentFormatter(1, decimals=1))
        left.margins(y=0.18)
        figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return done(figure)


def sensitivity(rows: Sequence[LayerSensitivity], most: int = 20) -> Figure:
    """Signal-to-noise ratio with only one layer in int8; the shortest bars are the layers to keep in float."""
    shown = list(rows[:most])[::-1]
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(7.2, 0.26 * len(shown) + 1.2), layout="constrained")
        bars = axes.barh([row["layer"] for row in shown], [row["snr_db"] for row in shown], color=DARK)
        axes.bar_label(bars, [f"{row['drop_pp']:+.2f} pp" for row in shown], padding=3, fontsize=8)
        axes.set(xlabel="output SNR with only this layer in int8, dB (label: drop in validation accuracy)")
        axes.set_title("Sensitivity by layer, most sensitive first")
        axes.margins(x=0.14)
        axes.grid(axis="y", visible=False)
    return done(figure)


def _steps(axes: Axes, x: Sequence[float], rows: Sequence[PruneStep], floor: float) -> None:
    y = [row["validation_accuracy"] for row in rows]
    axes.vlines(x, [lowest(row) for row in rows], y, color=MID, linewidth=2, label="left open by the samples")
    axes.plot(x, y, "-o", color=DARK, markersize=5)
    kept = next(index for index, row in enumerate(rows) if row["kept"])
    axes.plot([x[kept]], [y[kept]], "o", markersize=12, markerfacecolor="none", color=ACCENT, label="kept")
    axes.axhline(floor, color="#333333", linewidth=1, linestyle="--", label="accuracy budget")
    for row, across, up in zip(rows, x, y, strict=True):
        axes.annotate(
            f"{row['step']}", (across, up), xytext=(0, 8), textcoords="offset points", ha="center", fontsize=8
        )
