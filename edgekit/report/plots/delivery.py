"""What came out of the converters, and what is in a bundle."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from edgekit.core.schema.conversion import LastBoundary
from edgekit.report.plots.style import DARK, LIGHT, MARKER, MID, STYLE, done


def boundaries(rows: Sequence[LastBoundary]) -> Figure:
    """SNR of every conversion step against the step before; a line for each network on each target."""
    lines = list(dict.fromkeys(_line(row) for row in rows))[::-1]
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(7.2, 0.26 * len(lines) + 1.6), layout="constrained")
        for row in rows:
            axes.plot([row["snr_db"]], [lines.index(_line(row))], MARKER[row["precision"]], color=DARK, markersize=6.5)
        axes.set_yticks(range(len(lines)), lines)
        axes.set(xlabel="SNR against the step before, dB (higher is closer)", ylim=(-0.7, len(lines) - 0.3))
        axes.set_xlim(min(0, *(row["snr_db"] for row in rows)) - 2, None)
        axes.set_title("What each conversion changed")
        there = {row["precision"] for row in rows}
        for precision, marker in MARKER.items():
            if precision in there:
                axes.plot([], [], marker, color=DARK, label=f"to {precision}")
        figure.legend(loc="outside lower center", ncols=5)
    return done(figure)


def bundle_members(bundles: dict[str, dict[str, int]]) -> Figure:
    """Bytes of each bundle by member."""
    kinds = ("model", "golden", "rest")
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(7.2, 0.5 * len(bundles) + 1.3), layout="constrained")
        left = dict.fromkeys(bundles, 0.0)
        for kind, colour, hatch in zip(kinds, (DARK, MID, LIGHT), ("", "...", "///"), strict=True):
            widths = [
                sum(size for name, size in each.items() if _kind(name) == kind) / 1024 for each in bundles.values()
            ]
            axes.barh(
                list(bundles),
                widths,
                left=list(left.values()),
                color=colour,
                hatch=hatch,
                edgecolor="white",
                label={"model": "model", "golden": "golden vectors", "rest": "manifest and texts"}[kind],
            )
            left = {name: left[name] + width for name, width in zip(left, widths, strict=True)}
        axes.set(xlabel="KiB")
        axes.set_title("What is in each bundle")
        axes.grid(axis="y", visible=False)
        figure.legend(loc="outside lower center", ncols=3)
    return done(figure)


def _line(row: LastBoundary) -> str:
    return str(row["name"]).replace(f"-{row['precision']}-", " → ")


def _kind(member: str) -> str:
    head = member.partition("/")[0]
    return head if head in ("model", "golden") else "rest"
