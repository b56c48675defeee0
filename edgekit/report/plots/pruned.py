"""What pruning gained in measured time, and where the zeros of a sparse network lie."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, PercentFormatter

from edgekit.core.schema.pruning import Pattern, PruneStep, StepLatency
from edgekit.report.plots.style import ACCENT, COLOUR, DARK, FILL, MARKER, STYLE, Look, done

DASH = {"fp32": "-", "fp16": ":", "int8": "--"}
WANTED_SHARE = 0.8
"""Of the multiply-adds' gain, as the workbook wants it in time."""


def accuracy_by_cost(steps: Sequence[PruneStep], latencies: Sequence[StepLatency], floor: float) -> Figure:
    """Validation accuracy of every structured step against its MACs, and against its measured p50 on every target."""
    accuracy = {row["step"]: row["validation_accuracy"] for row in steps}
    with plt.rc_context(STYLE):
        figure, (left, right) = plt.subplots(1, 2, figsize=(7.6, 3.7), layout="constrained", sharey=True)
        left.plot([row["macs"] / 1e6 for row in steps], list(accuracy.values()), "-o", color=DARK, markersize=5)
        for row in steps:
            place = (row["macs"] / 1e6, row["validation_accuracy"])
            left.annotate(str(row["step"]), place, xytext=(0, 8), textcoords="offset points", ha="center", fontsize=8)
        for target, precision, rows in _series(latencies):
            look = _look(target, precision)
            values = [accuracy[row["step"]] for row in rows]
            right.plot([row["p50_ms"] for row in rows], values, label=f"{target} {precision}", **look)
        for axes in (left, right):
            axes.margins(y=0.18)
            axes.axhline(floor, color="#333333", linewidth=1, linestyle="-.")
        left.annotate(
            "accuracy budget", (0.03, floor), xycoords=("axes fraction", "data"), xytext=(0, 3),
            textcoords="offset points", fontsize=8,
        )  # fmt: skip
        left.set(xlabel="multiply-adds, millions (number: step)", ylabel="validation accuracy", xlim=(0, None))
        left.set_title("What is predicted")
        left.yaxis.set_major_formatter(PercentFormatter(1, decimals=1))
        right.set(xlabel="p50 of one call, ms (log scale)", xscale="log")
        right.set_title("What is measured")
        if latencies:
            _plain_log(right)
        else:
            right.text(0.5, 0.5, "not measured", transform=right.transAxes, ha="center", fontsize=9)
            right.xaxis.set_major_formatter(NullFormatter())
            right.xaxis.set_minor_formatter(NullFormatter())
        figure.legend(*right.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return done(figure)


def predicted_and_measured(latencies: Sequence[StepLatency]) -> Figure:
    """Measured speed-up of every structured step against that of its MACs; on the line, all of it arrived."""
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
        series = list(_series(latencies))
        most = max([row["predicted"] for row in latencies], default=1.0)
        line = np.array([1.0, 1.08 * most])
        axes.plot(line, line, color="#333333", linewidth=1, label="all of the gain")
        axes.plot(line, WANTED_SHARE * line, color="#333333", linewidth=1, linestyle=":", label=f"{WANTED_SHARE:.0%}")
        for number, (target, precision, rows) in enumerate(series):
            aside = (number - (len(series) - 1) / 2) * 0.009 * most  # so that whiskers do not hide one another
            x = [row["predicted"] + (aside if row["step"] else 0) for row in rows]
            y = [row["measured"] for row in rows]
            ends = [[row["measured"] - row["measured_low"] for row in rows],
                    [row["measured_high"] - row["measured"] for row in rows]]  # fmt: skip
            look = {**_look(target, precision), "linewidth": 0.8}
            axes.errorbar(x, y, yerr=ends, elinewidth=1, capsize=2, label=f"{target} {precision}", **look)
        axes.set(xlabel="predicted speed-up: multiply-adds of step 0 over the step's, ×")
        axes.set(ylabel="measured speed-up over step 0, ×")
        axes.set_title("Predicted and measured speed-up of every step")
        axes.legend(loc="upper left", fontsize=8)
    return done(figure)


def zero_patterns(layers: Sequence[Pattern], most: int = 4) -> Figure:
    """Weights of some layers as a map, black where one is left and white where it is zero; sparsity of all below."""
    shown = [layers[place] for place in np.unique(np.linspace(0, len(layers) - 1, min(most, len(layers))).astype(int))]
    height = 0.19 * len(layers) + 1.0
    with plt.rc_context(STYLE):
        figure = plt.figure(figsize=(7.6, 2.7 + height), layout="constrained")
        parts: Any = figure.subfigures(2, 1, height_ratios=[2.7, height])
        top, bottom = parts
        for axes, row in zip(np.atleast_1d(top.subplots(1, len(shown))), shown, strict=True):
            _map(axes, row)
        axes = bottom.subplots()
        rows = list(layers)[::-1]
        bars = axes.barh([row["name"] for row in rows], [row["zeros"] for row in rows], color=DARK)
        axes.bar_label(bars, [f"{row['zeros']:.0%} of {row['weights']:,}" for row in rows], padding=3, fontsize=8)
        axes.set(xlabel="zero weights, share of the layer", xlim=(0, 1.25), ylim=(-0.6, len(rows) - 0.4))
        axes.set_xticks([0, 0.25, 0.5, 0.75, 1.0])
        axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        axes.tick_params(axis="y", labelsize=8)
        axes.set_title("Sparsity of every layer")
        axes.grid(axis="y", visible=False)
    return done(figure)


def _map(axes: Axes, row: Pattern) -> None:
    outputs, inputs = row["nonzero"].shape
    axes.imshow(row["nonzero"], cmap="binary", vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    of = "" if (outputs, inputs) == tuple(row["shape"]) else f"\n(first of {row['shape'][0]} × {row['shape'][1]})"
    axes.set_title(f"{row['name']}\n{row['zeros']:.0%} zero", fontsize=9)
    axes.set_xlabel(f"{inputs} in · k · k{of}", fontsize=8)
    axes.set_ylabel(f"{outputs} out-channels", fontsize=8)
    axes.set(xticks=[], yticks=[])
    axes.grid(visible=False)
    for side in ("top", "right", "bottom", "left"):
        axes.spines[side].set(visible=True, color=ACCENT)


def _series(latencies: Sequence[StepLatency]) -> Iterator[tuple[str, str, list[StepLatency]]]:
    """Rows by target and precision, in order."""
    for target, precision in dict.fromkeys((row["target"], row["precision"]) for row in latencies):
        yield target, precision, [row for row in latencies if (row["target"], row["precision"]) == (target, precision)]


def _look(target: str, precision: str) -> Look:
    look: Look = {"color": COLOUR[target], "marker": MARKER[precision], "fillstyle": FILL[target]}
    return {**look, "linestyle": DASH[precision], "markersize": 6, "linewidth": 1.1}


def _plain_log(axes: Axes) -> None:
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 3, 5)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
