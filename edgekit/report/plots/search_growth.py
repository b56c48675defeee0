"""How the front of a study grew, and what the study cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from edgekit.report.plots.style import ACCENT, DARK, NAMING, Look, done

ENDS: dict[str, Look] = {
    "infeasible": {"color": "#bbbbbb", "hatch": "///", "edgecolor": "white"},
    "stopped": {"color": "#56B4E9", "hatch": "...", "edgecolor": "white"},
    "failed": {"color": ACCENT, "hatch": "xxx", "edgecolor": "white"},
    "went on": {"color": DARK},
}
"""What became of the trials that came to a rung; the hatch says the same in greyscale."""


def search_growth(batches: Sequence[Mapping[str, Any]]) -> Figure | None:
    """Hypervolume of the front after each batch, as a share of the last: by trials and by time; None without a front.

    `batches` are rows of `trials` (all until then), `seconds`, `hypervolume` and `disturbed`.
    """
    last = batches[-1]["hypervolume"] if batches else 0.0
    if not last:
        return None
    shares = [row["hypervolume"] / last for row in batches]
    scale, unit = _unit(batches[-1]["seconds"])
    with plt.rc_context(NAMING):
        figure, (left, right) = plt.subplots(1, 2, figsize=(9.2, 3.2), layout="constrained", sharey=True)
        by_trials, by_time = [row["trials"] for row in batches], [row["seconds"] / scale for row in batches]
        for axes, ends in ((left, by_trials), (right, by_time)):
            axes.step([0, *ends], [0, *shares], where="post", color=DARK, linewidth=1.8)
            axes.plot(ends, shares, "o", color=DARK, markersize=4)
            wrong = [place for place, row in enumerate(batches) if row["disturbed"]]
            axes.plot([ends[place] for place in wrong], [shares[place] for place in wrong], "s", color=ACCENT,
                      markersize=9, fillstyle="none", label="measured while disturbed")  # fmt: skip
            if wrong:
                axes.legend(loc="lower right", fontsize=8)
            axes.set_xlim(0, 1.03 * max(ends))
        left.set_ylim(0, 1.06 * max(1.0, *shares))
        left.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        left.xaxis.set_major_locator(MaxNLocator(integer=True))
        left.set(xlabel="trials", ylabel="hypervolume, of the last front’s")
        right.set(xlabel=f"time since the study began, {unit}")
        left.set_title("How the front grew")
    return done(figure)


def search_cost(rungs: Sequence[Mapping[str, Any]]) -> Figure | None:
    """Rungs from cheap to dear: how many trials came there and what became of them, and the work; None without time.

    `rungs` are rows of `title`, `came`, `ended` by state, and `seconds` of the trials that ended there.
    """
    whole = sum(row["seconds"] for row in rungs)
    if not whole:
        return None
    scale, unit = _unit(max(row["seconds"] for row in rungs))
    with plt.rc_context(NAMING):
        figure, (left, right) = plt.subplots(
            1, 2, figsize=(9.2, 1.5 + 0.38 * len(rungs)), layout="constrained", sharey=True
        )
        for place, row in enumerate(rungs):
            at = 0
            for state, look in ENDS.items():
                went_on = row["came"] - sum(row["ended"].values())
                many = went_on if state == "went on" else row["ended"].get(state, 0)
                left.barh(place, many, left=at, height=0.66, **look)
                at += many
            left.annotate(f"{row['came']:,}", (at, place), xytext=(4, 0), textcoords="offset points", va="center",
                          fontsize=8)  # fmt: skip
            right.barh(place, row["seconds"] / scale, height=0.66, color=DARK)
            right.annotate(_share(row["seconds"] / whole), (row["seconds"] / scale, place), xytext=(4, 0),
                           textcoords="offset points", va="center", fontsize=8)  # fmt: skip
        left.set_yticks(range(len(rungs)), [row["title"] for row in rungs])
        left.set_ylim(len(rungs) - 0.4, -0.6)
        left.xaxis.set_major_locator(MaxNLocator(integer=True))
        for axes in (left, right):
            axes.grid(visible=False, axis="y")
            axes.margins(x=0.12)
        left.set(xlabel="trials that came to the rung")
        right.set(xlabel=f"work of the trials that ended there, {unit}")
        left.set_title("What the rungs sifted out")
        right.set_title("and what they cost")
        for state, look in ENDS.items():
            if state == "went on" or any(row["ended"].get(state) for row in rungs):
                left.barh(0, 0, label="went on, or complete" if state == "went on" else state, **look)
        figure.legend(loc="outside lower center", ncols=4, fontsize=8.5)
    return done(figure)


def _share(share: float) -> str:
    return "< 1 %" if 0 < share < 0.005 else f"{100 * share:.0f} %"


def _unit(seconds: float) -> tuple[float, str]:
    """What to divide by, and its name."""
    if seconds < 180:
        return 1.0, "seconds"
    return (60.0, "minutes") if seconds < 3 * 3600 else (3600.0, "hours")
