"""Where the time goes."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from edgekit.plots.style import DARK, LIGHT, MID, STYLE, Row, done


def latency_parts(latency: dict[str, dict[str, float]]) -> Figure:
    """Preprocess, execute and postprocess on one bar (mean), with the percentiles of the whole below it."""
    parts = ("preprocess", "execute", "postprocess")
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(7.2, 2.3), layout="constrained")
        left = 0.0
        for name, colour, hatch in zip(parts, (LIGHT, DARK, MID), ("///", "", "..."), strict=True):
            width = latency[name]["mean_ms"]
            axes.barh(0, width, left=left, color=colour, hatch=hatch, edgecolor="white", label=_share(name, latency))
            left += width
        for rank in (50, 95, 99):
            value = latency["total"][f"p{rank}_ms"]
            axes.axvline(value, color="#333333", linewidth=1, linestyle={50: "-", 95: "--", 99: ":"}[rank])
            axes.annotate(
                f"p{rank} {value:.2f}",
                (value, {50: 0.47, 95: 0.60, 99: 0.73}[rank]),
                fontsize=8,
                xytext=(3, 0),
                textcoords="offset points",
            )
        right = 1.12 * max(left, latency["total"]["p99_ms"])
        axes.set(ylim=(-0.5, 0.85), yticks=[], xlim=(0, right), xlabel="one call, ms (bar: mean; lines: percentiles)")
        axes.set_title("Where one call goes, PyTorch eager")
        axes.grid(axis="y", visible=False)
        figure.legend(loc="outside lower center", ncols=3)
    return done(figure)


def operators(rows: Sequence[Row], most: int = 8) -> Figure:
    """Self time of the slowest operators, ms per call."""
    shown = list(rows[:most])[::-1]
    rest = sum(row["self_ms"] for row in rows[most:])
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(7.2, 0.32 * len(shown) + 1.2), layout="constrained")
        bars = axes.barh([_operator(row) for row in shown], [row["self_ms"] for row in shown], color=DARK)
        axes.bar_label(bars, [f"{row['share']:.0%}" for row in shown], padding=3, fontsize=8)
        axes.set(xlabel=f"self time, ms per call under the profiler (all others: {rest:.2f} ms)")
        axes.set_title("Time by operator")
        axes.grid(axis="y", visible=False)
    return done(figure)


def _operator(row: Row) -> str:
    return f"{row['operator'].lstrip('_')} ({row['calls']:.0f} calls)"


def _share(name: str, latency: dict[str, dict[str, float]]) -> str:
    return f"{name} {latency[name]['share']:.1%}"
