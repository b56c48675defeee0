"""Names written beside what they name, pushed apart where they would touch."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes

from edgekit.report.plots.style import Look


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
