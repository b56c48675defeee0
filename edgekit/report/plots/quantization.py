"""What int8 does to a layer's values, and what hangs on the samples that set its ranges."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator, PercentFormatter

from edgekit.core.schema.quantization import CalibrationSize, Histogram
from edgekit.report.plots.style import ACCENT, DARK, LIGHT, MID, STYLE, done

BLACK = "#222222"
UNIT = {"step": "in steps of the value's own channel", "value": "in its own units"}


def histograms(rows: Sequence[Histogram]) -> Figure | None:
    """Weights and inputs of each layer: float filled, int8 as steps, the range's ends dashed; log scale."""
    if not rows:
        return None
    layers = list(dict.fromkeys(row["layer"] for row in rows))
    parts = ("weights", "activations")
    with plt.rc_context(STYLE):
        figure, grid = plt.subplots(
            len(layers), 2, figsize=(7.6, 2.5 * len(layers) + 0.5), layout="constrained", squeeze=False
        )
        for axes in grid.flat:
            axes.set_visible(False)
        for row in rows:
            _values(grid[layers.index(row["layer"])][parts.index(row["part"])], row)
        shown = next(axes for axes in grid.flat if axes.get_visible())
        figure.legend(*shown.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return done(figure)


def calibration(rows: Sequence[CalibrationSize]) -> Figure | None:
    """Two draws of each size: SNR of either against float and of one against the other; answers that differ."""
    if not rows:
        return None
    sizes = [row["samples"] for row in rows]
    with plt.rc_context(STYLE):
        figure, (left, right) = plt.subplots(1, 2, figsize=(7.6, 3.1), layout="constrained")
        for draw, marker, colour in ((0, "o", DARK), (1, "s", MID)):
            values = [row["snr_db"][draw] for row in rows]
            left.plot(
                sizes, values, f"-{marker}", color=colour, markersize=5.5, label=f"draw {'AB'[draw]} against float"
            )
        between = [row["between_snr_db"] for row in rows]
        left.plot(sizes, between, "--^", color=ACCENT, markersize=5.5, label="A against B")
        left.set(ylabel="SNR of the logits, dB")
        left.set_title("How close to float")
        shares = [row["disagreement"] for row in rows]
        right.plot(sizes, shares, "-D", color=BLACK, markersize=5.5)
        right.set(ylabel="share of validation answers", ylim=(0, 1.25 * max(*shares, 0.004)))
        right.yaxis.set_major_formatter(PercentFormatter(1, decimals=1))
        right.set_title("Answers that differ between A and B")
        for axes in (left, right):
            axes.set(xlabel="calibration samples (log scale)", xscale="log")
            axes.set_xticks(sizes, [str(size) for size in sizes])
            axes.xaxis.set_minor_locator(NullLocator())
            axes.margins(x=0.12)
        figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return done(figure)


def _values(axes: Axes, row: Histogram) -> None:
    axes.set_visible(True)
    edges = row["edges"]
    axes.stairs(row["float"], edges, fill=True, color=LIGHT, label="float")
    axes.stairs(row["int8"], edges, color=BLACK, linewidth=1.2, label="int8")
    for place, end in enumerate(row["range"]):
        label = None if place else "ends of the int8 range"
        axes.axvline(end, color=ACCENT, linewidth=1.2, linestyle="--", label=label)
    most = max(*row["float"], *row["int8"])
    axes.set(yscale="log", ylim=(0.7, 12 * most), ylabel="values (log scale)")
    axes.set_xlabel(f"{_called(row)}, {UNIT[row['unit']]}", fontsize=8.5)
    sensitive = "most sensitive" if row["most_sensitive"] else "least sensitive"
    axes.set_title(f"{row['layer']}, {sensitive}: {_called(row)}", fontsize=9.5)
    clipped = f"{row['clipped'] / max(1, sum(row['float'])):.2%} clipped"
    axes.text(0.5, 0.97, f"{row['levels_used']} levels used, {clipped}", transform=axes.transAxes,
              ha="center", va="top", fontsize=8)  # fmt: skip


def _called(row: Histogram) -> str:
    return "weights" if row["part"] == "weights" else "what enters it"
