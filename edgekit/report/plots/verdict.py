"""Every variant side by side, and the speed-up of each step."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, PercentFormatter

from edgekit.core.schema.limits import Limits
from edgekit.core.schema.variants import BaselineRow, VariantRow, WaterfallStep
from edgekit.measure.forecast import way_of
from edgekit.report.formatting import faster, span
from edgekit.report.plots.style import COLOUR, DARK, FILL, MARKER, STYLE, Look, done, lowest
from edgekit.targets import FEW_BITS


def pareto(rows: Sequence[BaselineRow | VariantRow], budget: Limits, winners: Sequence[str]) -> Figure:
    """Accuracy against measured p50 of every variant, with the budget drawn in; winners are ringed and named.

    A whisker hangs down to the accuracy that the samples leave open: it must not cross the line of the budget. Where
    devices decided, the limit of latency is theirs, and is not drawn through the latencies of this machine. Nor is one
    that differs from target to target, or that is relative: it moves with every round.
    """
    elsewhere = any("device" in row for row in rows)
    limit_ms = None if elsewhere or "targets" in budget else budget["latency_p50_ms"]
    baseline = rows[0]
    floor = baseline["accuracy_validation"] - budget["accuracy_drop_pp"] / 100
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(7.6, 4.2), layout="constrained")
        for row in rows:
            look: Look = {
                "marker": "X" if row is baseline else MARKER[row["precision"]],
                "color": COLOUR[row["target"]],
            }
            place = ([row["p50_ms"]], [row["accuracy_validation"]])
            if row is not baseline:
                axes.vlines(place[0], lowest(row), place[1], color=look["color"], linewidth=1, alpha=0.5)
            axes.plot(*place, linestyle="", markersize=7, fillstyle=FILL[row["target"]], alpha=0.9, **look)
        axes.set_xscale("log")
        accuracies = [row["accuracy_validation"] for row in rows]
        low = min(*accuracies, *(lowest(row) for row in rows[1:]), floor)
        span = max(accuracies) - low or 0.01
        axes.set_ylim(low - 0.12 * span, max(accuracies) + 0.30 * span)
        axes.set_xlim(min(row["p50_ms"] for row in rows) / 1.8, max(row["p50_ms"] for row in rows) * 2.2)
        axes.axhspan(axes.get_ylim()[0], floor, color="#eeeeee", zorder=0)
        axes.axhline(floor, color="#333333", linewidth=1, linestyle="--")
        if limit_ms:
            axes.axvline(limit_ms, color="#333333", linewidth=1, linestyle=":")
        _name_points(axes, rows, winners)
        where = " on this machine" if elsewhere else ""
        axes.set(xlabel=f"p50 of one call{where}, ms (log scale)", ylabel="validation accuracy")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=1))
        axes.set_yticks([tick for tick in axes.get_yticks() if axes.get_ylim()[0] <= tick <= 1.0])
        axes.set_title("Every variant: accuracy against measured latency")
        shown = {row["precision"] for row in rows}
        _pareto_legend(axes, budget, limit_ms, [one for one in MARKER if one in shown or one not in FEW_BITS])
    return done(figure)


def waterfall(steps: Sequence[WaterfallStep]) -> Figure:
    """p50 after each step of the pipeline, log scale, with its speed-up; steps not kept are hatched.

    Below the gain of a step stands the interval of that ratio; one that holds 1 is no measurable gain.
    """
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(7.6, 3.4), layout="constrained")
        for position, step in enumerate(steps):
            look: Look = {"color": DARK} if step["kept"] else {"color": "white", "edgecolor": DARK, "hatch": "////"}
            axes.bar(position, step["p50_ms"], width=0.62, **look)
            note = f"{step['p50_ms']:.3g} ms" + (f"\n{_gain(step)}" if "gain" in step else "")
            note += "" if step["kept"] else "\nnot kept"
            axes.annotate(
                note, (position, step["p50_ms"]), xytext=(0, 3), textcoords="offset points", ha="center", fontsize=8
            )
        axes.set_yscale("log")
        shortest = min(step["p50_ms"] for step in steps)
        axes.set_ylim(shortest / 2.5, max(step["p50_ms"] for step in steps) * 6)
        axes.set_xticks(range(len(steps)), [f"{step['step']}\n{_short(step)}" for step in steps], fontsize=8)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.set(ylabel="p50 of one call, ms (log scale)")
        axes.set_title("Speed-up of each step")
        axes.grid(axis="x", visible=False)
    return done(figure)


def _name_points(axes: Axes, rows: Sequence[BaselineRow | VariantRow], winners: Sequence[str]) -> None:
    """Ring and number the winners and list them in the corner, where the names cannot collide."""
    named = sorted((row for row in rows if row["name"] in winners), key=lambda row: row["p50_ms"])
    for number, row in enumerate(named, 1):
        place = (row["p50_ms"], row["accuracy_validation"])
        axes.plot(*[[value] for value in place], "o", markersize=15, markerfacecolor="none", color="#333333")
        axes.annotate(
            str(number), place, xytext=(0, 10), textcoords="offset points", ha="center", fontsize=9, weight="bold"
        )
    text = "\n".join(f"{number}  {row['name']}, {row['p50_ms']:.3g} ms" for number, row in enumerate(named, 1))
    axes.text(0.015, 0.975, text, transform=axes.transAxes, va="top", fontsize=8.5, linespacing=1.4)
    baseline = rows[0]
    axes.annotate(
        f"{way_of(baseline['interpreter'])}, {baseline['p50_ms']:.3g} ms",
        (baseline["p50_ms"], baseline["accuracy_validation"]),
        xytext=(0, 9),
        textcoords="offset points",
        fontsize=8,
        ha="center",
    )


def _pareto_legend(axes: Axes, budget: Limits, limit_ms: float | None, precisions: Sequence[str]) -> None:
    for target in ("tflite", "openvino", "onnx"):
        axes.plot([], [], "D", color=COLOUR[target], fillstyle=FILL[target], label=target)
    for precision in precisions:
        axes.plot([], [], MARKER[precision], color="#777777", label=precision)
    axes.plot([], [], "o", markersize=10, markerfacecolor="none", color="#333333", label="wins its target")
    sure = f"{100 * budget['accuracy_confidence']:g} %"
    axes.plot([], [], "--", color="#333333", linewidth=1, label=f"{budget['accuracy_drop_pp']:g} pp under the baseline")
    axes.plot([], [], "|", color="#777777", markersize=10, label=f"left open at {sure} confidence")
    if limit_ms:
        axes.plot([], [], ":", color="#333333", linewidth=1, label=f"{limit_ms:g} ms, the limit")
    axes.legend(
        loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=6, fontsize=8, handletextpad=0.4, columnspacing=1.0
    )


def _gain(step: WaterfallStep) -> str:
    low, high = step["gain_low"], step["gain_high"]
    return f"{faster(step['gain'], low, high)}\n({span(low, high)})"


def _short(step: WaterfallStep) -> str:
    return str(step["variant"]) if "gain" in step else ""
