"""Candidates for the student: what a call takes against what it computes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from edgekit.core.schema.training import CandidatePoint
from edgekit.report.plots.style import ACCENT, DARK, STYLE, Look, done

LOOKS = (("o", DARK), ("s", ACCENT), ("^", "#333333"), ("D", "#56B4E9"), ("v", "#009E73"))
"""Marker and colour of each family, in the order they come."""
LEAST_GAP = 0.075
"""Between two numbers of one line, share of a panel's width."""
LINE_POINTS = 10
FAR = 4
"""A limit so many times above the slowest is named, not drawn: it would compress the scale."""


class Network(NamedTuple):
    """One that was timed, whatever its files."""

    macs: int
    name: str
    family: str
    kept: bool


def candidates(points: Sequence[CandidatePoint], limit_ms: float | None = None) -> Figure | None:
    """p50 against multiply-adds, both log, a panel for each target; hollow is fp32, full is int8. None without points.

    Numbers above a panel name the networks, in the order of their multiply-adds; a family has one marker.
    """
    if not points:
        return None
    networks = sorted({Network(row["macs"], row["name"], family(row["builder"]), row["kept"]) for row in points})
    targets = list(dict.fromkeys(row["target"] for row in points))
    families = list(dict.fromkeys(network.family for network in networks))
    looks = {name: LOOKS[place % len(LOOKS)] for place, name in enumerate(families)}
    low, high = _ends([network.macs for network in networks])
    lines = lines_up([network.macs for network in networks], low, high)
    size = (2.2 + 2.2 * len(targets), 3.0 + 0.14 * max(lines) + 0.1 * (len(networks) + 3))
    with plt.rc_context(STYLE):
        figure, panels = plt.subplots(1, len(targets), figsize=size, layout="constrained", sharey=True, squeeze=False)
        levels = [row["p50_ms"] for row in points]
        near = limit_ms is not None and limit_ms <= FAR * max(levels)
        levels += [limit_ms] if limit_ms and near else []
        for axes, target in zip(panels[0], targets, strict=True):
            axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=_ends(levels), xlabel="multiply-adds, millions")
            _networks(axes, [row for row in points if row["target"] == target], looks)
            _numbers(axes, networks, lines)
            axes.set_title(target, pad=8 + LINE_POINTS * (max(lines) + 1))
            for axis, unit in ((axes.xaxis, 1e6), (axes.yaxis, 1)):
                axis.set_major_locator(LogLocator(subs=_steps(*axis.get_view_interval())))
                axis.set_major_formatter(FuncFormatter(partial(_plain, unit=unit)))
                axis.set_minor_locator(NullLocator())
            if limit_ms and near:
                axes.axhspan(limit_ms, axes.get_ylim()[1], color="#eeeeee", zorder=0)
                axes.axhline(limit_ms, color="#333333", linewidth=1, linestyle="--")
        panels[0][0].set_ylabel("p50 of one call, untrained, ms")
        _legend(figure, networks, looks, _budget(limit_ms, near))
    return done(figure)


def family(builder: str) -> str:
    """`resnet` of `edgekit.models.resnet:resnet8`: networks of one module are drawn alike."""
    return builder.partition(":")[0].rpartition(".")[2]


def _networks(axes: Axes, rows: Sequence[CandidatePoint], looks: dict[str, tuple[str, str]]) -> None:
    """Both precisions of a network hang on one line; the student's is thick."""
    for name in dict.fromkeys(row["name"] for row in rows):
        own = [row for row in rows if row["name"] == name]
        marker, colour = looks[family(own[0]["builder"])]
        values = [row["p50_ms"] for row in own]
        axes.vlines(own[0]["macs"], min(values), max(values), color=colour, linewidth=3 if own[0]["kept"] else 1)
        for row in own:
            face = colour if row["precision"] == "int8" else "white"
            axes.plot(row["macs"], row["p50_ms"], marker, color=colour, markerfacecolor=face, markersize=7)


def _numbers(axes: Axes, networks: Sequence[Network], lines: Sequence[int]) -> None:
    """Above the panel, each over its network."""
    for number, (network, line) in enumerate(zip(networks, lines, strict=True), 1):
        axes.annotate(
            str(number),
            (network.macs, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(0, 3 + LINE_POINTS * line),
            textcoords="offset points",
            ha="center",
            fontsize=8.5,
            weight="bold" if network.kept else "normal",
        )
        axes.axvline(network.macs, color="#cccccc", linewidth=0.6, linestyle=":", zorder=0)


def lines_up(macs: Sequence[float], low: float, high: float) -> list[int]:
    """How many lines up each number stands, so that none touches another; `macs` ascend between `low` and `high`."""
    ends: list[float] = []
    found = []
    for value in macs:
        x = math.log(value / low) / math.log(high / low)
        line = next((place for place, end in enumerate(ends) if x - end >= LEAST_GAP), len(ends))
        ends[line : line + 1] = [x]
        found.append(line)
    return found


def _legend(figure: Figure, networks: Sequence[Network], looks: dict[str, tuple[str, str]], budget: str) -> None:
    lines = []
    for number, network in enumerate(networks, 1):
        marker, colour = looks[network.family]
        label = f"{number}  {network.name}" + (", the student" if network.kept else "")
        lines.append(Line2D([], [], linestyle="", marker=marker, color=colour, markersize=6, label=label))
    grey: Look = {"linestyle": "", "marker": "o", "color": "#777777", "markersize": 6}
    lines.append(Line2D([], [], markerfacecolor="white", label="hollow: fp32", **grey))
    lines.append(Line2D([], [], label="full: int8", **grey))
    if budget:
        lines.append(Line2D([], [], color="#333333", linewidth=1, linestyle="--", label=budget))
    figure.legend(handles=lines, loc="outside lower center", ncols=2, fontsize=8.5, handletextpad=0.5)


def _ends(values: Sequence[float]) -> tuple[float, float]:
    """Room on both sides of a log axis, enough for a tick at 1, 2 or 5."""
    room = max((max(values) / min(values)) ** 0.12, 1.6)
    return min(values) / room, max(values) * room


def _budget(limit_ms: float | None, near: bool) -> str:
    return (f"budget, {limit_ms:g} ms" + ("" if near else ": far above")) if limit_ms else ""


def _steps(low: float, high: float) -> tuple[float, ...]:
    """Ticks within a decade: fewer where there are many decades."""
    return (1.0, 2.0, 5.0) if high / low < 300 else (1.0,)


def _plain(value: float, _: int, unit: float) -> str:
    return f"{value / unit:g}"
