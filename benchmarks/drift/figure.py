"""The figure of the page: how many samples each detector needs for each drift."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.drift.measured import OURS, Result

SHOWN: dict[str, dict[str, Any]] = {
    "K-S windows, budget": {"marker": "^", "color": "#777777", "markerfacecolor": "none", "markersize": 5.5},
    "Page-Hinkley, all statistics, budget": {"marker": "x", "color": "#777777", "markersize": 5},
    "ADWIN, all statistics, budget": {"marker": "s", "color": "#444444", "markerfacecolor": "none", "markersize": 5},
    OURS: {"marker": "o", "color": "#0072B2", "markersize": 4.5},
}
"""Markers differ in shape and filling, so that the figure is read without colours too. The last is drawn on top."""
NOT_FOUND = 7000.0
TICKS = (16, 64, 256, 1024, 4096)


def write(results: Sequence[Result], path: Path) -> None:
    """A PNG with a line for each drift, weak on the left and strong on the right."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    from edgekit.report.figures import STYLE

    lines = list(dict.fromkeys((r.subject["name"], facts["title"]) for r in results for facts in r.drifts))
    with plt.rc_context({**STYLE, "text.parse_math": False}):
        size = (8.6, 1.6 + 0.165 * len(lines))
        chart, panels = plt.subplots(1, 2, figsize=size, sharey=True, layout="constrained")
        for axes, strength in zip(panels, ("weak", "strong")):
            _panel(axes, results, strength, {line: number for number, line in enumerate(lines)})
        panels[0].set_yticks(range(len(lines)), [f"{title}  ({subject})" for subject, title in lines], fontsize=7)
        panels[0].set_ylim(len(lines) - 0.4, -0.6)
        handles, labels = panels[1].get_legend_handles_labels()
        chart.legend(handles[::-1], labels[::-1], loc="outside lower center", ncols=2, fontsize=8)
        chart.savefig(path, dpi=130, metadata={"Software": None})
        plt.close(chart)


def _panel(axes: Any, results: Sequence[Result], strength: str, rows: dict[tuple[str, str], int]) -> None:
    for name, look in SHOWN.items():
        x, y = [], []
        for result in results:
            for facts, outcome in zip(result.drifts, result.outcomes.get(name, ())):
                if facts["strength"] == strength:
                    x.append(NOT_FOUND if outcome.delay is None else max(TICKS[0], outcome.delay))
                    y.append(rows[result.subject["name"], facts["title"]])
        axes.plot(x, y, linestyle="none", label=name, **look)
    axes.set_xscale("log")
    axes.set_xlim(12, 10000)
    axes.axvline(5000, color="#999999", linewidth=0.8)
    axes.set_xticks([*TICKS, NOT_FOUND], [*map(str, TICKS), "not\nfound"], fontsize=7.5)
    axes.minorticks_off()
    axes.set_xlabel("samples from the drift's begin to the alarm (median)", fontsize=8)
    axes.set_title(f"{strength} drifts")
    axes.tick_params(length=0)
