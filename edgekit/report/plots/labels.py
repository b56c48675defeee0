"""Names written beside what they name, pushed apart where they would touch."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes

from edgekit.report.plots.style import Look

OFFSETS = tuple(
    (dx, dy) for dx, dy in ((0, 14), (0, -14), (16, 0), (-16, 0), (13, 11), (-13, 11), (13, -11), (-13, -11))
)
"""Of a text from its point, in points."""


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


def label_points(axes: Axes, marked: Sequence[tuple[float, float, str]], points: Sequence[tuple[float, float]]) -> None:
    """Ring the marked points, (x, y, text) of the data, and write each text where the fewest points and texts are near.

    Call it when the figure has been laid out: distances are those on the page.
    """
    at = [tuple(axes.transData.transform(point)) for point in points]
    pixels = axes.get_figure(root=True).dpi / 72  # type: ignore[union-attr]
    room = axes.get_window_extent()
    texts: dict[tuple[float, float], list[str]] = {}
    for x, y, text in marked:
        texts.setdefault((x, y), []).append(text)
    for place, names in texts.items():
        x, y = axes.transData.transform(place)
        spots = [(x + pixels * dx, y + pixels * dy, dx, dy) for dx, dy in OFFSETS]
        inside = [
            spot for spot in spots
            if abs(spot[0] - (room.x0 + room.x1) / 2) < room.width / 2 - 9 * pixels
            and abs(spot[1] - (room.y0 + room.y1) / 2) < room.height / 2 - 6 * pixels
        ] or spots  # fmt: skip
        own = (x, y)
        _, _, dx, dy = max(
            inside,
            key=lambda spot: min((abs(spot[0] - a) + abs(spot[1] - b) for a, b in at if (a, b) != own), default=0),
        )
        axes.plot(*[[value] for value in place], "o", markersize=13, markerfacecolor="none", color="#333333", zorder=4)
        axes.annotate(", ".join(names), place, xytext=(dx, dy), textcoords="offset points", ha="center", va="center",
                      fontsize=9, weight="bold", zorder=5,
                      bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.7, "pad": 0.3})  # fmt: skip
        at.append((x + pixels * dx, y + pixels * dy))


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
