"""Show the choice of the student, and the contribution of each teacher and loss."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator, PercentFormatter

from edgekit.core.artifacts import Artifact
from edgekit.core.schema.training import CandidatePoint, Epoch, ShortlistRow, ShownCandidate, StudentRow
from edgekit.report.figures import ACCENT, DARK, MID, STYLE, PlotStyle, close_figure, label_curve_ends
from edgekit.report.formatting import count, milliseconds, percent, percentage_points
from edgekit.report.tables import Table

NO_LONE_STUDENT = "no student was trained with labels alone, so it is not known what the teacher brought"
FAMILY_STYLES = (("o", DARK), ("s", ACCENT), ("^", "#333333"), ("D", "#56B4E9"), ("v", "#009E73"))
"""Marker and colour of each family of networks, in order."""
MIN_LABEL_GAP = 0.075
"""Smallest distance between two numbers on a line, as a share of the panel's width."""
LINE_POINTS = 10
MAX_LIMIT_FACTOR = 4
"""A limit that is more than this many times the largest latency is only named in the legend, because drawing it would
compress the scale."""
CURVE_STYLES = (("#333333", ":", "o"), (ACCENT, "-", "s"), (DARK, "--", "^"), (MID, "-.", "D"), ("#009E73", "-", "v"))
"""Colour, line and marker of each curve."""


def table(artifact: Artifact) -> Table:
    """Show the teachers, and the student for each loss and, if it was trained, with labels alone."""
    metrics = artifact.metrics
    students: list[StudentRow] = metrics["students"]
    small = tuple(count(metrics["student_cost"][name]) for name in ("parameters", "macs"))
    rows = [
        (
            f"teacher: {row['name']}",
            percent(row["validation_accuracy"]),
            "",
            "",
            *(count(row["cost"][name]) if row["cost"] else "" for name in ("parameters", "macs")),
            "teaches" if row["teaches"] else "",
        )
        for row in metrics["teachers"]
    ]
    rows += [
        (
            "student, labels alone" if row["options"] is None else f"student, {row['name']}",
            percent(row["validation_accuracy"]),
            "" if row["options"] is None or row["gain_pp"] is None else f"{row['gain_pp']:+.2f}",
            "" if row["gap_closed"] is None else percentage_points(row["gap_closed"]),
            *small,
            "kept" if row["kept"] else "",
        )
        for row in students
    ]
    rows += [(f"student, {name}", "", "", "", "", "", f"skipped: {why}") for name, why in metrics["skipped"].items()]
    heads = ("network", "validation accuracy", "gain, pp", "share of the gap", "parameters", "MACs", "")
    alone = any(row["options"] is None for row in students)
    return Table(heads, rows, "" if alone else NO_LONE_STUDENT)


def curves(artifact: Artifact) -> dict[str, list[Epoch]]:
    """Return the epochs of each training of the student, by name."""
    return {"labels alone" if name == "alone" else name: rows for name, rows in artifact.metrics["history"].items()}


def candidates_table(artifact: Artifact) -> Table:
    """Show every candidate for the student: its size, its p50 before training on every target, and the outcome.

    The outcome also says which files could not be converted and therefore were not timed.
    """
    rows = artifact.metrics["candidates"]
    if not rows:
        return Table(("candidates",), [("the config names a single student, so there is nothing to choose",)])
    files = list(dict.fromkeys((file["target"], file["precision"]) for row in rows for file in row["timed"]))
    heads = ("candidate", "parameters", "MACs", "bytes", *map(" ".join, files), "best", "validation", "")
    rows = [
        (
            row["name"],
            count(row["parameters"]),
            count(row["macs"]),
            count(min(row["bytes"].values(), default=None)),
            *_times(row, files),
            milliseconds(row["best"]["p50_ms"] if row["best"] else None),
            percent(row["validation_accuracy"]),
            "; ".join(["the student" if row["kept"] else row["reason"], *_lost(row)]),
        )
        for row in rows
    ]
    return Table(heads, rows, _title(artifact.metrics["shortlist"]))


def _times(row: ShownCandidate, files: list[tuple[str, str]]) -> list[str]:
    """Return the p50 of each file, or a dash if it could not be converted."""
    p50_by_file = {(file["target"], file["precision"]): file["p50_ms"] for file in row["timed"]}
    return [milliseconds(p50_by_file.get(file)) for file in files]


def _lost(row: ShownCandidate) -> list[str]:
    return [f"{one['target']} {one['precision']} left out: {one['reason']}" for one in row["left_out"]]


def candidate_points(artifact: Artifact) -> list[CandidatePoint]:
    """Return a row for each file that was timed, as `candidates_figure` draws it."""
    candidates: list[ShownCandidate] = artifact.metrics["candidates"]
    return [
        {**timed, "name": row["name"], "builder": row["builder"], "macs": row["macs"], "kept": row["kept"]}
        for row in candidates
        for timed in row["timed"]
    ]


def latency_limit_ms(artifact: Artifact) -> float | None:
    """Return the latency limit of the candidates in ms.

    Returns None if there is no limit, or if the budget has relative limits or limits for single targets.
    """
    shortlist = artifact.metrics["shortlist"]
    return shortlist["latency_p50_ms"] if shortlist and "limits" not in shortlist else None


def _title(shortlist: ShortlistRow) -> str:
    limits = [f"p50 {shortlist['latency_p50_ms']:g} ms"] if shortlist["latency_p50_ms"] else []
    limits += [f"{shortlist['size_bytes']:,} bytes"] if shortlist["size_bytes"] else []
    limits = shortlist.get("limits", limits)
    text = "p50 of one call before training, ms, by target; bytes of the smallest file; budget: "
    text += ", ".join(limits) or "none on latency or size"
    if shortlist["no_student_for"]:
        text += f"; no student for {', '.join(shortlist['no_student_for'])}: the chosen one has no file for it"
    if shortlist["replayed"] and shortlist["measured"] != shortlist["today"]:
        trained = ", ".join(shortlist["today"]["trained"]) or "none"
        text += f"; a recorded choice was followed, and this measurement would have trained {trained}"
    return text


class Network(NamedTuple):
    """A timed network. All its files, in every precision and for every target, are drawn at the same multiply-adds."""

    macs: int
    name: str
    family: str
    kept: bool


def candidates_figure(points: Sequence[CandidatePoint], limit_ms: float | None = None) -> Figure | None:
    """Draw p50 against multiply-adds, with a panel for each target. Returns None if there are no points.

    Markers of fp32 files are hollow, and those of int8 files are filled. Numbers above a panel name the networks in the
    order of their multiply-adds. Each family has its own marker.
    """
    if not points:
        return None
    networks = sorted({Network(row["macs"], row["name"], family(row["builder"]), row["kept"]) for row in points})
    targets = list(dict.fromkeys(row["target"] for row in points))
    families = list(dict.fromkeys(network.family for network in networks))
    looks = {name: FAMILY_STYLES[place % len(FAMILY_STYLES)] for place, name in enumerate(families)}
    low, high = _axis_ends([network.macs for network in networks])
    lines = label_rows([network.macs for network in networks], low, high)
    size = (2.2 + 2.2 * len(targets), 3.0 + 0.14 * max(lines) + 0.1 * (len(networks) + 3))
    with plt.rc_context(STYLE):
        figure, panels = plt.subplots(1, len(targets), figsize=size, layout="constrained", sharey=True, squeeze=False)
        levels = [row["p50_ms"] for row in points]
        near = limit_ms is not None and limit_ms <= MAX_LIMIT_FACTOR * max(levels)
        levels += [limit_ms] if limit_ms and near else []
        for axes, target in zip(panels[0], targets, strict=True):
            axes.set(
                xscale="log", yscale="log", xlim=(low, high), ylim=_axis_ends(levels), xlabel="multiply-adds, millions"
            )
            _networks(axes, [row for row in points if row["target"] == target], looks)
            _numbers(axes, networks, lines)
            axes.set_title(target, pad=8 + LINE_POINTS * (max(lines) + 1))
            for axis, unit in ((axes.xaxis, 1e6), (axes.yaxis, 1)):
                axis.set_major_locator(LogLocator(subs=_tick_steps(*axis.get_view_interval())))
                axis.set_major_formatter(FuncFormatter(partial(_plain_number, unit=unit)))
                axis.set_minor_locator(NullLocator())
            if limit_ms and near:
                axes.axhspan(limit_ms, axes.get_ylim()[1], color="#eeeeee", zorder=0)
                axes.axhline(limit_ms, color="#333333", linewidth=1, linestyle="--")
        panels[0][0].set_ylabel("p50 of one call before training, ms")
        _legend(figure, networks, looks, _budget_label(limit_ms, near))
    return close_figure(figure)


def family(builder: str) -> str:
    """Return the name of a builder's module, such as `resnet` for `edgekit.models.resnet:resnet8`.

    Networks of the same module are drawn in the same style.
    """
    return builder.partition(":")[0].rpartition(".")[2]


def _networks(axes: Axes, rows: Sequence[CandidatePoint], looks: dict[str, tuple[str, str]]) -> None:
    """Draw the fp32 and the int8 file of each network on a vertical line, which is thick for the student."""
    for name in dict.fromkeys(row["name"] for row in rows):
        own = [row for row in rows if row["name"] == name]
        marker, colour = looks[family(own[0]["builder"])]
        values = [row["p50_ms"] for row in own]
        axes.vlines(own[0]["macs"], min(values), max(values), color=colour, linewidth=3 if own[0]["kept"] else 1)
        for row in own:
            face = colour if row["precision"] == "int8" else "white"
            axes.plot(row["macs"], row["p50_ms"], marker, color=colour, markerfacecolor=face, markersize=7)


def _numbers(axes: Axes, networks: Sequence[Network], lines: Sequence[int]) -> None:
    """Write the number of each network above the panel."""
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


def label_rows(macs: Sequence[float], low: float, high: float) -> list[int]:
    """Return the row above the panel in which each network's number is written, so that the numbers do not overlap.

    `macs` are the multiply-adds of the networks, ascending. The axis goes from `low` to `high`.
    """
    ends: list[float] = []
    rows = []
    for value in macs:
        x = math.log(value / low) / math.log(high / low)
        line = next((place for place, end in enumerate(ends) if x - end >= MIN_LABEL_GAP), len(ends))
        ends[line : line + 1] = [x]
        rows.append(line)
    return rows


def _legend(figure: Figure, networks: Sequence[Network], looks: dict[str, tuple[str, str]], budget: str) -> None:
    lines = []
    for number, network in enumerate(networks, 1):
        marker, colour = looks[network.family]
        label = f"{number}  {network.name}" + (", the student" if network.kept else "")
        lines.append(Line2D([], [], linestyle="", marker=marker, color=colour, markersize=6, label=label))
    grey: PlotStyle = {"linestyle": "", "marker": "o", "color": "#777777", "markersize": 6}
    lines.append(Line2D([], [], markerfacecolor="white", label="hollow: fp32", **grey))
    lines.append(Line2D([], [], label="full: int8", **grey))
    if budget:
        lines.append(Line2D([], [], color="#333333", linewidth=1, linestyle="--", label=budget))
    figure.legend(handles=lines, loc="outside lower center", ncols=2, fontsize=8.5, handletextpad=0.5)


def _axis_ends(values: Sequence[float]) -> tuple[float, float]:
    """Return the ends of a log axis. It has a margin on both sides and is long enough for a tick at 1, 2 or 5."""
    margin = max((max(values) / min(values)) ** 0.12, 1.6)
    return min(values) / margin, max(values) * margin


def _budget_label(limit_ms: float | None, near: bool) -> str:
    return (f"budget, {limit_ms:g} ms" + ("" if near else ": far above")) if limit_ms else ""


def _tick_steps(low: float, high: float) -> tuple[float, ...]:
    """Return the ticks within a decade of a log axis. An axis over many decades has fewer ticks in each."""
    return (1.0, 2.0, 5.0) if high / low < 300 else (1.0,)


def _plain_number(value: float, _: int, unit: float) -> str:
    return f"{value / unit:g}"


def curves_figure(curves: Mapping[str, Sequence[Epoch]], reference: tuple[str, float] | None = None) -> Figure:
    """Draw validation accuracy by epoch, with a line for each training. `reference` is drawn as a horizontal line."""
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(7.2, 3.0), layout="constrained")
        for rows, (colour, line, marker) in zip(curves.values(), itertools.cycle(CURVE_STYLES), strict=False):
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
            for _, (colour, _, marker) in zip(curves, itertools.cycle(CURVE_STYLES), strict=False)
        ]
        if reference:
            ends[reference[0]] = (last, reference[1])
            looks.append({"color": "#333333", "marker": "_"})
        label_curve_ends(axes, list(ends.values()), list(ends), looks)
    return close_figure(figure)
