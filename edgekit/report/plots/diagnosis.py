"""Where the time goes, and the roofline of the layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from edgekit.core.schema.profile import LayerTime, Operator, PredictedSpeedup, Way
from edgekit.measure.forecast import EAGER, RUNTIMES
from edgekit.report.plots.style import ACCENT, DARK, LIGHT, MID, STYLE, done, plain_ticks

PARTS = ("queue", "preprocess", "execute", "postprocess", "serialise")
LOOKS = (
    (LIGHT, "///"),
    (MID, "..."),
    (DARK, ""),
    (ACCENT, "\\\\\\"),
    ("#999999", "xxx"),
    ("#DDDDDD", "---"),
    (MID, ""),
)
TITLES = {"pytorch": EAGER, **RUNTIMES}


def latency_parts(latency: dict[str, dict[str, float]], shares: Mapping[str, float]) -> Figure:
    """One call by its parts (mean), with the percentiles of the whole; below it, what that time is spent for."""
    with plt.rc_context(STYLE):
        figure, (parts, causes) = plt.subplots(2, 1, figsize=(7.2, 3.9), layout="constrained")
        values = {name: latency[name]["mean_ms"] for name in PARTS}
        _stack(parts, values, {name: f"{name} {latency[name]['share']:.1%}" for name in PARTS})
        for rank, height in ((50, 0.50), (95, 0.66), (99, 0.82)):
            value = latency["total"][f"p{rank}_ms"]
            parts.axvline(value, color="#333333", linewidth=1, linestyle={50: "-", 95: "--", 99: ":"}[rank])
            parts.annotate(
                f"p{rank} {value:.3g}", (value, height), fontsize=8, xytext=(3, 0), textcoords="offset points"
            )
        right = 1.14 * max(sum(values.values()), latency["total"]["p99_ms"])
        parts.set(ylim=(-0.5, 1.0), xlim=(0, right), xlabel="one call, ms (bar: mean; lines: percentiles)")
        parts.set_title("Where one call of the baseline goes")
        _stack(causes, {name: 100 * share for name, share in shares.items()},
               {name: f"{name} {share:.0%}" for name, share in shares.items()})  # fmt: skip
        causes.set(ylim=(-0.5, 0.5), xlim=(0, 100), xlabel="share of a call, its part of the start included, %")
        causes.set_title("What limits it")
        for axes in (parts, causes):
            axes.set_yticks([])
            axes.grid(axis="y", visible=False)
            axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=8)
    return done(figure)


def _stack(axes: Axes, values: Mapping[str, float], labels: Mapping[str, str]) -> None:
    left = 0.0
    for (name, width), (colour, hatch) in zip(values.items(), cycle(LOOKS), strict=False):
        axes.barh(0, width, left=left, color=colour, hatch=hatch, edgecolor="white", label=labels[name])
        left += width


def operators(rows: Sequence[Operator], inside: Mapping[str, Sequence[Operator]], most: int = 6) -> Figure:
    """Self time of the slowest operators, ms per call: PyTorch's, and those that each runtime made of the network."""
    shown = {**({"pytorch": rows} if rows else {}), **inside}
    if not shown:
        return _nothing("no operators: PyTorch does not run the baseline, and profile.runtimes is false")
    with plt.rc_context(STYLE):
        high = (len(shown) + 1) // 2
        figure, grid = plt.subplots(high, 2, figsize=(9.6, 2.4 * high), layout="constrained", squeeze=False)
        for axes, (target, found) in zip(grid.flat, shown.items(), strict=False):
            _bars(axes, list(found), most)
            axes.set_title(TITLES[target])
        for axes in list(grid.flat)[len(shown) :]:
            axes.set_visible(False)
        figure.supxlabel("self time under the profiler, ms a call", fontsize=9)
    return done(figure)


def _nothing(why: str) -> Figure:
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(7.2, 0.8), layout="constrained")
        axes.set_axis_off()
        axes.text(0, 0.5, why, va="center")
    return done(figure)


def _bars(axes: Axes, found: list[Operator], most: int) -> None:
    top = found[:most][::-1]
    rest = sum(row["self_ms"] for row in found[most:])
    names = [_short(row["operator"], row["calls"]) for row in top]
    bars = axes.barh(range(len(top)), [row["self_ms"] for row in top], color=DARK)
    axes.bar_label(bars, [f"{row['share']:.0%}" for row in top], padding=3, fontsize=8)
    axes.set_yticks(range(len(top)), names, fontsize=8)
    axes.set_xmargin(0.18)
    axes.grid(axis="y", visible=False)
    if rest:
        axes.annotate(f"all others {rest:.3g} ms", (0.98, 0.06), xycoords="axes fraction", ha="right", fontsize=8)


def _short(name: str, calls: float) -> str:
    name = name.lstrip("_")
    return f"{name if len(name) <= 28 else name[:27] + '…'} ×{calls:.0f}"


def ways(rows: Sequence[Way]) -> Figure:
    """The same float network on every runtime, p50 with its interval; fastest at the top."""
    measured = sorted((row for row in rows if "p50_ms" in row), key=lambda row: -row["p50_ms"])
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(7.2, 0.36 * len(measured) + 1.1), layout="constrained")
        values = np.array([row["p50_ms"] for row in measured])
        ends = np.array([[row["p50_ms"] - row["low_ms"], row["high_ms"] - row["p50_ms"]] for row in measured]).T
        axes.barh([row["way"] for row in measured], values, xerr=ends, color=MID, ecolor="#333333", capsize=3)
        for place, row in enumerate(measured):
            label = f"{row['p50_ms']:.3g} ms, {row['ratio']:.2f}×"
            axes.annotate(
                label, (row["high_ms"], place), xytext=(6, 0), textcoords="offset points", va="center", fontsize=8
            )
        axes.set(xlim=(0, 1.3 * max(row["high_ms"] for row in measured)))
        axes.set_xlabel("p50 of one call, ms, one thread (line: 99 % interval; ×: against the unmodified baseline)")
        axes.set_title("The unmodified network on each runtime")
        axes.grid(axis="y", visible=False)
    return done(figure)


def roofline(layers: Sequence[LayerTime], machine: Mapping[str, float]) -> Figure:
    """Every layer's rate against its arithmetic intensity, under the machine's roofline in float and in int8.

    Layers that multiply nothing have no point; multiply-adds outside layers are reported in the title.
    """
    shown = [row for row in layers if row["macs"] and row["intensity"]]
    intensity = {row["layer"]: row["intensity"] or 0.0 for row in shown}
    low, high = min([0.1, *intensity.values()]) / 2, 2 * max([25.0, *intensity.values()])
    along = np.geomspace(low, high, 200)
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(7.2, 3.8), layout="constrained")
        for name, key, style in (("float", "gmacs_per_s", "-"), ("int8", "int8_gmacs_per_s", "--")):
            # an int8 value has a quarter of the bytes, so the same layer stands further to the right there
            roof = np.minimum(machine[key], along * machine["gbytes_per_s"])
            axes.plot(
                along, roof, color="#333333", linestyle=style, label=f"ceiling in {name}: {machine[key]:.0f} GMAC/s"
            )
        for bound, marker, fill in (("compute", "o", DARK), ("memory", "s", "none")):
            rows = [row for row in shown if row["bound"] == bound]
            if not rows:
                continue
            sizes = [20 + 400 * row["ms"] / sum(one["ms"] for one in layers) for row in rows]
            axes.scatter(
                [intensity[row["layer"]] for row in rows], [row["gmacs_per_s"] for row in rows],
                s=sizes, marker=marker, facecolor=fill, edgecolor=DARK, label=f"layer limited by {bound}",
            )  # fmt: skip
        if shown:
            slowest = max(shown, key=lambda row: row["ms"])
            axes.annotate(
                f"{slowest['layer']}, {slowest['ms']:.3g} ms",
                (intensity[slowest["layer"]], slowest["gmacs_per_s"]),
                xytext=(0, -22), textcoords="offset points", ha="center", fontsize=8,
            )  # fmt: skip
        axes.annotate(_unshown(layers), (0.02, 0.97), xycoords="axes fraction", va="top", fontsize=8)
        axes.set(xscale="log", yscale="log", xlim=(low, high), ylabel="multiply-adds, GMAC/s")
        axes.set_xlabel(f"arithmetic intensity, multiply-adds per byte (slope: {machine['gbytes_per_s']:.0f} GB/s)")
        axes.set_title("Every layer on this machine's roofline; area: its share of the time")
        axes.legend(loc="lower right", fontsize=8)
    return done(figure)


def _unshown(layers: Sequence[LayerTime]) -> str:
    """What the roofline cannot show; nothing where it shows all that multiplies."""
    macs = sum(row["macs"] for row in layers)
    if not macs:
        return "no multiply-adds were counted: none are of recurrent\nlayers, nor of files that OpenVINO cannot read"
    share = sum(row["macs"] for row in layers if not row["intensity"]) / macs
    return f"not shown: {share:.0%} of the multiply-adds,\ndone where PyTorch sees no layer" if share >= 0.01 else ""


def predicted(rows: Sequence[PredictedSpeedup]) -> Figure:
    """The speed-up that profile predicted of each variant against the one that was measured; on the line both agree."""
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(7.2, 3.8), layout="constrained")
        ends = [value for row in rows for value in (row["predicted"], row["achieved_low"], row["achieved_high"])]
        low, high = 0.8 * min(ends), 1.25 * max(ends)
        axes.plot([low, high], [low, high], color="#333333", linewidth=1, label="as predicted")
        for target, marker, colour in (("tflite", "o", DARK), ("openvino", "s", ACCENT), ("onnx", "^", MID)):
            for precision, fill in (("fp32", "none"), ("int8", colour)):
                some = [row for row in rows if (row["target"], row["precision"]) == (target, precision)]
                if not some:
                    continue
                achieved = np.array([row["achieved"] for row in some])
                whisker = np.array([[row["achieved"] - row["achieved_low"], row["achieved_high"] - row["achieved"]]
                                    for row in some]).T  # fmt: skip
                axes.errorbar(
                    [row["predicted"] for row in some], achieved, yerr=whisker, linestyle="none", marker=marker,
                    color=colour, markerfacecolor=fill, capsize=2, label=f"{TITLES[target]} {precision}",
                )  # fmt: skip
        axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high))
        plain_ticks(axes)
        axes.set(xlabel="predicted by 01, × the baseline", ylabel="measured, × the baseline")
        axes.set_title("Predicted against achieved")
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=8)
    return done(figure)
