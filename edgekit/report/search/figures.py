"""A study in figures: its front, its options, how the front grew, and what the rungs cost."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from edgekit.core.config import Budget
from edgekit.core.schema.study import TrialRow
from edgekit.report.figures import ACCENT, DARK, NAMING, Look, done, label_points, plain_ticks
from edgekit.report.formatting import both_ends
from edgekit.report.search import recommend, studies
from edgekit.report.search.importances import Importances
from edgekit.report.search.objectives import Objective
from edgekit.report.search.studies import Study, plain, value
from edgekit.report.search.words import spent

WIDE = 3.0
"""Times the smallest value from which on an axis is a logarithm."""
MOST_PAIRS, MOST_TICKS = 6, 5
KINDS: dict[str, tuple[str, Look]] = {
    "over": ("over the budget", {"marker": "x", "color": "#888888", "markersize": 5, "alpha": 0.8}),
    "inside": ("inside the budget", {"marker": "o", "color": DARK, "markersize": 5, "fillstyle": "none"}),
    "front": ("on the front", {"marker": "D", "color": ACCENT, "markersize": 5.5, "markeredgecolor": "#333333",
                               "markeredgewidth": 0.6}),
}  # fmt: skip
"""Of a trial, drawn in this order: label and look; the marker says the same in greyscale."""
MOST_OPTIONS = 14
MOST_AXES = 9
LINES: dict[str, tuple[str, dict[str, Any]]] = {
    "rest": ("ruled out early, or failed", {"color": "#bbbbbb", "linewidth": 0.7, "linestyle": ":"}),
    "over": ("complete, over the budget", {"color": "#999999", "linewidth": 0.8, "linestyle": "--"}),
    "inside": ("inside the budget", {"color": DARK, "linewidth": 0.9, "alpha": 0.75}),
    "front": ("on the front", {"color": ACCENT, "linewidth": 2.2, "marker": "D", "markersize": 4}),
}
LONGEST = 22
MANY = 8
"""Lines of a kind, above which they are thinner."""
NONE_AT = -0.08
ENDINGS: dict[str, Look] = {
    "infeasible": {"color": "#bbbbbb", "hatch": "///", "edgecolor": "white"},
    "stopped": {"color": "#56B4E9", "hatch": "...", "edgecolor": "white"},
    "failed": {"color": ACCENT, "hatch": "xxx", "edgecolor": "white"},
    "went on": {"color": DARK},
}
"""What became of the trials that came to a rung; the hatch says the same in greyscale."""


def front(study: Study) -> Figure | None:
    """Each pair of objectives; the recommended points are numbered."""
    named = {point.number: point.title.lower() for point in recommend.points(study)}
    on_front = {each["number"] for each in study.front}
    points = []
    for trial in study.complete:
        kind = _kind(trial, on_front)
        row: dict[str, Any] = {"number": trial["number"], "kind": kind, "values": [], "lows": [], "highs": []}
        for each in study.objectives:
            own = value(trial, each)
            low, high = trial["intervals"][each.place] or (own, own)
            for key, end in (("values", own), ("lows", low), ("highs", high)):
                row[key].append(each.scaled(end))
        points.append(row)
    return draw_front([_axis(study, each) for each in study.objectives], points, named)


def _axis(study: Study, objective: Objective) -> dict[str, Any]:
    limit = limit_of(study, objective)
    return {
        "heading": objective.heading,
        "log": objective.name != "accuracy" and _is_wide([value(each, objective) for each in study.complete]),
        "maximize": objective.maximize,
        "limit": None if limit is None else objective.scaled(limit),
        "limit_words": "" if limit is None else objective.shown(limit).replace("\u00a0", " "),
    }


def _is_wide(found: list[float]) -> bool:
    """Whether a log scale says more: on one, numbers close together have hardly a tick."""
    return bool(found) and min(found) > 0 and max(found) >= WIDE * min(found)


def limit_of(study: Study, objective: Objective) -> float | None:
    """The budget's limit of an objective; of accuracy only where the study knows the baseline's.

    A p50 beside a reference's is no line in milliseconds: None.
    """
    budget = study.row["budget"]
    if objective.name != "accuracy":
        limits = Budget.model_validate(budget).limits(objective.target or "")
        return limits.latency_p50_ms if objective.name == "p50_ms" else limits.max_bytes()
    baseline, drop = study.row.get("baseline_accuracy"), budget.get("accuracy_drop_pp")
    return None if baseline is None or drop is None else baseline - drop / 100


def importances(study: Study, found: Importances) -> Figure | None:
    """Options in the order of their largest share."""
    largest: dict[str, float] = {}
    for row in found.rows:
        largest[row.key] = max(row.share, largest.get(row.key, 0.0))
    order = sorted(largest, key=lambda key: -largest[key])
    short = studies.names(study)
    rows = {
        each.title: {short[row.key]: {"share": row.share, "low": row.low, "high": row.high} for row in found.of(each)}
        for each in study.objectives
    }
    return draw_importances([each.title for each in study.objectives], [short[key] for key in order], rows)


def parallel(study: Study, found: Importances) -> Figure | None:
    """The objectives on the right; where options are many, those with the largest importance."""
    short = studies.names(study)
    keys = [key for key in short if any(key in each["parameters"] for each in study.trials)]
    largest = {key: max((row.share for row in found.rows if row.key == key), default=0.0) for key in keys}
    kept = sorted(keys, key=lambda key: -largest[key])[: max(1, MOST_AXES - len(study.objectives))]
    keys = [key for key in keys if key in kept]
    scales = [_Scale.of_option(study, key) for key in keys]
    ends = [_Scale.of_objective(study, each) for each in study.objectives] if study.complete else []
    axes = [
        {"heading": short[key], "ticks": scale.ticks, "option": True} for key, scale in zip(keys, scales, strict=True)
    ]
    for each, scale in zip(study.objectives, ends, strict=False):
        heading = f"{each.heading} {'↑' if each.maximize else '↓'}"
        axes.append({"heading": heading, "ticks": scale.ticks, "option": False})
    on_front = {each["number"] for each in study.front}
    lines = []
    for trial in study.trials:
        places = [scale.place(trial["parameters"].get(key)) for key, scale in zip(keys, scales, strict=True)]
        complete = trial["state"] == "complete"
        reached = [_scaled(trial, each) if complete else None for each in study.objectives]
        places += [scale.place(each) for each, scale in zip(reached, ends, strict=False)]
        lines.append({"kind": _kind(trial, on_front), "places": places})
    return draw_parallel(axes, lines)


def _kind(trial: TrialRow, on_front: set[int]) -> str:
    if trial["state"] != "complete":
        return "rest"
    return "front" if trial["number"] in on_front else "inside" if trial["feasible"] else "over"


def _scaled(trial: TrialRow, objective: Objective) -> float:
    return objective.scaled(value(trial, objective))


class _Scale:
    """Of a vertical axis: where a value stands between 0 and 1, and its ticks."""

    def __init__(self, choices: list[Any], low: float, high: float, log: bool) -> None:
        self._choices = [json.dumps(each, sort_keys=True) for each in choices]
        self._low, self._high, self._log = low, high, log and low > 0
        if choices:
            self.ticks = [(self.place(each), plain(each)) for each in choices]
        else:
            ends = dict.fromkeys((low, high))
            self.ticks = [(self.place(each), f"{each:.3g}") for each in ends]

    @classmethod
    def of_option(cls, study: Study, key: str) -> _Scale:
        """All entries of the key in the space."""
        rows = [each for each in study.row["space"] if each["key"] == key]
        if any("choices" in row for row in rows):
            listed = {json.dumps(each): each for row in rows for each in row.get("choices", ())}
            return cls(list(listed.values()), 0, 1, log=False)
        low, high = min(row["low"] for row in rows), max(row["high"] for row in rows)
        return cls([], low, high, all(row.get("log", False) for row in rows))

    @classmethod
    def of_objective(cls, study: Study, objective: Objective) -> _Scale:
        """From the smallest to the largest of all complete trials."""
        found = [_scaled(each, objective) for each in study.complete]
        return cls([], min(found), max(found), log=objective.name != "accuracy")

    def place(self, given: Any) -> float | None:
        """None of what a trial does not have."""
        if given is None and json.dumps(None) not in self._choices:
            return None
        if self._choices:
            text = json.dumps(given, sort_keys=True)
            if text not in self._choices:
                return None
            return self._choices.index(text) / max(1, len(self._choices) - 1)
        ends = (self._low, self._high, max(given, self._low))
        low, high, own = (math.log(each) if self._log else each for each in ends)
        return min(1.0, (own - low) / (high - low)) if high > low else 0.5


def draw_front(
    axes: Sequence[Mapping[str, Any]], points: Sequence[Mapping[str, Any]], named: Mapping[int, str]
) -> Figure | None:
    """A panel for each pair of objectives; None without a complete trial, or with a single objective.

    `axes` are rows of `heading`, `log`, `maximize`, `limit` (None where there is none) and `limit_words`, one for each
    objective. `points` are rows of `number`, `kind` and by objective `values`, `lows` and `highs`, in the axes' units.
    `named` says in words what the trials are that are numbered in the figure. Further pairs than `MOST_PAIRS` are left
    out; those with the first objective come first.
    """
    pairs = list(combinations(range(len(axes)), 2))[:MOST_PAIRS]
    if not pairs or not points:
        return None
    wide = min(len(pairs), 2)
    high = -(-len(pairs) // wide)
    with plt.rc_context(NAMING):
        size = (9.2, 3.7 * high + (0.0 if len(pairs) % 2 == 0 or wide == 1 else 0.1)) if wide == 2 else (7.6, 4.6)
        figure, grid = plt.subplots(high, wide, figsize=size, layout="constrained", squeeze=False)
        panels: list[Axes] = [panel for line in grid for panel in line]
        for panel, (one, other) in zip(panels, pairs, strict=False):
            x, y = (other, one) if axes[one]["maximize"] else (one, other)
            _panel(panel, axes, points, x, y)
        handles = _handles(panels[0], axes)
        words = "\n".join(f"{number}  {text}" for number, text in named.items())
        if len(panels) > len(pairs):
            rest = panels[len(pairs)]
            rest.set_axis_off()
            rest.legend(handles=handles, loc="upper left", fontsize=8.5, title=words, alignment="left")
        else:
            figure.legend(handles=handles, loc="outside lower center", ncols=3, fontsize=8.5, title=words)
        for panel in panels[len(pairs) + 1 :]:
            panel.set_axis_off()
        figure.suptitle("Every complete trial, two objectives at a time", x=0.01, ha="left", fontsize=10.5,
                        fontweight="bold")  # fmt: skip
        figure.draw_without_rendering()  # labels are placed by the pixel
        for panel, (one, other) in zip(panels, pairs, strict=False):
            x, y = (other, one) if axes[one]["maximize"] else (one, other)
            marked = [(row["values"][x], row["values"][y], str(row["number"])) for row in points
                      if row["number"] in named]  # fmt: skip
            label_points(panel, marked, [(row["values"][x], row["values"][y]) for row in points])
    return done(figure)


def _panel(panel: Axes, axes: Sequence[Mapping[str, Any]], points: Sequence[Mapping[str, Any]], x: int, y: int) -> None:
    for kind, (_, look) in KINDS.items():
        mine = [row for row in points if row["kind"] == kind]
        if kind == "front":
            _stairs(panel, axes, [row for row in points if row["kind"] != "over"], x, y)
            for row in mine:
                at = row["values"][x], row["values"][y]
                panel.plot([row["lows"][x], row["highs"][x]], [at[1]] * 2, color=ACCENT, linewidth=1, zorder=2.5)
                panel.plot([at[0]] * 2, [row["lows"][y], row["highs"][y]], color=ACCENT, linewidth=1, zorder=2.5)
        panel.plot([row["values"][x] for row in mine], [row["values"][y] for row in mine], linestyle="none",
                  zorder=3, **look)  # fmt: skip
    panel.margins(0.09)
    for place, scale, line in ((x, panel.set_xscale, panel.axvline), (y, panel.set_yscale, panel.axhline)):
        if axes[place]["log"]:
            scale("log")
        if axes[place]["limit"] is not None:
            line(axes[place]["limit"], color="#333333", linewidth=1.1, linestyle="--", zorder=1)
    plain_ticks(panel)
    for axis in (panel.xaxis, panel.yaxis):
        if axis.get_scale() == "linear":
            axis.set_major_locator(MaxNLocator(MOST_TICKS))
    ends = {x: panel.get_xlim(), y: panel.get_ylim()}
    for place, span in ((x, panel.axvspan), (y, panel.axhspan)):
        limit = axes[place]["limit"]
        if limit is not None:
            span(*((ends[place][0], limit) if axes[place]["maximize"] else (limit, ends[place][1])), color="#eeeeee",
                 zorder=0)  # fmt: skip
    panel.set(xlim=ends[x], ylim=ends[y])
    panel.set(xlabel=_words(axes[x]), ylabel=_words(axes[y]))


def _stairs(panel: Axes, axes: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]], x: int, y: int) -> None:
    """What is best in these two alone, as a step line: beyond it lies nothing that was tried."""
    sign = -1 if axes[y]["maximize"] else 1
    best: list[tuple[float, float]] = []
    for at in sorted({(row["values"][x], row["values"][y]) for row in rows}, key=lambda at: (at[0], sign * at[1])):
        if not best or sign * at[1] < sign * best[-1][1]:
            best.append(at)
    if len(best) > 1:
        panel.step([at[0] for at in best], [at[1] for at in best], where="post", color=ACCENT, linewidth=0.9,
                  linestyle=":", zorder=2)  # fmt: skip


def _handles(panel: Axes, axes: Sequence[Mapping[str, Any]]) -> list[Any]:
    found = [panel.plot([], [], linestyle="none", label=label, **look)[0] for label, look in reversed(KINDS.values())]
    found += panel.plot([], [], "-", color=ACCENT, linewidth=1, label="interval, of the front")
    found += panel.plot([], [], ":", color=ACCENT, linewidth=0.9, label="best of these two alone")
    if limits := [each["limit_words"] for each in axes if each["limit"] is not None]:
        found += panel.plot(
            [], [], "--", color="#333333", linewidth=1.1, label=f"budget (grey: beyond it): {', '.join(limits)}"
        )
    return found


def _words(axis: Mapping[str, Any]) -> str:
    return f"{axis['heading']} (log scale)" if axis["log"] else str(axis["heading"])


def draw_importances(
    titles: Sequence[str], options: Sequence[str], rows: Mapping[str, Mapping[str, Mapping[str, float]]]
) -> Figure | None:
    """A panel for each objective, a bar for each option, None without a row.

    `rows` by title and option have `share`, `low` and `high` as fractions; an option without a row in any panel is
    left out there, and "unknown" stands in its place.
    """
    shown = [name for name in options if any(name in rows.get(title, {}) for title in titles)][:MOST_OPTIONS]
    panels = [title for title in titles if rows.get(title)]
    if not shown or not panels:
        return None
    with plt.rc_context(NAMING):
        figure, grid = plt.subplots(
            1, len(panels), figsize=(max(6.4, 1.4 + 2.6 * len(panels)), 1.3 + 0.34 * len(shown)),
            layout="constrained", sharey=True, squeeze=False,
        )  # fmt: skip
        for axes, title in zip(grid[0], panels, strict=True):
            for place, name in enumerate(shown):
                _bar(axes, place, rows[title].get(name))
            axes.set_xlim(0, 1)
            axes.set_xticks([0, 0.25, 0.5, 0.75])
            axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
            axes.grid(visible=False, axis="y")
            axes.set_title(title)
        grid[0][0].set_yticks(range(len(shown)), [both_ends(name, 34) for name in shown])
        grid[0][0].set_ylim(len(shown) - 0.4, -0.6)
        figure.supxlabel("share of the variance that the option explains alone; line: with other quarters of the "
                         "trials left out", fontsize=8.5)  # fmt: skip
    return done(figure)


def draw_parallel(axes: Sequence[Mapping[str, Any]], lines: Sequence[Mapping[str, Any]]) -> Figure | None:
    """Each trial as a line through its options and objectives; None without a trial.

    `axes` are rows of `heading`, `ticks`, (place, text) with places from 0 to 1, and `option`, whether it is one.
    `lines` are rows of `kind` and `places`, a place for each axis, or None where the trial has no such option or value.
    """
    if not lines or len(axes) < 2:
        return None
    with plt.rc_context(NAMING):
        figure, panel = plt.subplots(figsize=(max(7.6, 1.08 * len(axes) + 0.6), 4.6), layout="constrained")
        panel.set_axis_off()
        for kind, (label, look) in LINES.items():
            mine = [row for row in lines if row["kind"] == kind]
            look = {**look, "linewidth": look["linewidth"] * (0.65 if len(mine) > MANY else 1)}
            for row in mine:
                _through(panel, row["places"], [axis["option"] for axis in axes], look)
            if mine:
                panel.plot([], [], label=f"{label} ({len(mine)})", **look)
        for place, axis in enumerate(axes):
            panel.plot([place, place], [0, 1], color="#333333", linewidth=1, zorder=3)
            for at, text in axis["ticks"]:
                panel.plot([place - 0.03, place + 0.03], [at, at], color="#333333", linewidth=1, zorder=3)
                panel.annotate(
                    both_ends(text, LONGEST), (place, at), xytext=(5, 0), textcoords="offset points", va="center",
                    fontsize=7.5, zorder=5, bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.6},
                )  # fmt: skip
            panel.annotate(
                _wrapped(axis["heading"]), (place, 1), xytext=(0, 9), textcoords="offset points", ha="center",
                va="bottom", fontsize=8.5, weight="bold",
            )  # fmt: skip
            if axis["option"] and any(row["places"][place] is None for row in lines):
                panel.annotate("none", (place, -0.11), ha="center", va="center", fontsize=7.5, color="#555555")
        panel.set(xlim=(-0.35, len(axes) - 0.3), ylim=(-0.15, 1.0))
        figure.legend(loc="outside lower center", ncols=2, fontsize=8.5)
    return done(figure)


def _bar(axes: Axes, place: int, row: Mapping[str, float] | None) -> None:
    if row is None:
        axes.text(0.02, place, "unknown", va="center", fontsize=7.5, color="#555555", style="italic")
        return
    axes.barh(place, row["share"], height=0.62, color=DARK)
    axes.plot([row["low"], row["high"]], [place, place], color="#333333", linewidth=1.6)
    axes.plot([row["low"], row["high"]], [place, place], "|", color="#333333", markersize=6)
    axes.annotate(f"{row['share']:.0%}", (max(row["share"], row["high"]), place), xytext=(4, 0),
                  textcoords="offset points", va="center", fontsize=8)  # fmt: skip


def _through(panel: Axes, places: Sequence[float | None], options: Sequence[bool], look: Mapping[str, Any]) -> None:
    """Where it has no such option the line passes below all axes; where it has no value it ends."""
    missing = [NONE_AT if option else float("nan") for option in options]
    heights = [lack if each is None else each for each, lack in zip(places, missing, strict=True)]
    panel.plot(range(len(places)), heights, zorder=2, **look)


def _wrapped(heading: str) -> str:
    """In lines of no more than some 14 letters, broken at blanks, dots and underscores."""
    lines = [""]
    for part in heading.replace("_", "_\u200b").replace(" ", " \u200b").replace(".", ".\u200b").split("\u200b"):
        if lines[-1] and len(lines[-1]) + len(part.strip()) > 14:
            lines.append("")
        lines[-1] += part
    return "\n".join(line.strip() for line in lines)


def growth(study: Study) -> Figure | None:
    """Hypervolume of the front after each batch, as a share of the last, by trials and by time; None without one."""
    batches = study.row["batches"]
    last = batches[-1]["hypervolume"] if batches else 0.0
    if not last:
        return None
    shares = [row["hypervolume"] / last for row in batches]
    scale, unit = _unit(batches[-1]["seconds"])
    with plt.rc_context(NAMING):
        figure, (left, right) = plt.subplots(1, 2, figsize=(9.2, 3.2), layout="constrained", sharey=True)
        by_trials = [sum(trial["batch"] <= row["number"] for trial in study.trials) for row in batches]
        by_time = [row["seconds"] / scale for row in batches]
        for axes, ends in ((left, by_trials), (right, by_time)):
            axes.step([0, *ends], [0, *shares], where="post", color=DARK, linewidth=1.8)
            axes.plot(ends, shares, "o", color=DARK, markersize=4)
            wrong = [place for place, row in enumerate(batches) if row["disturbed"]]
            axes.plot([ends[place] for place in wrong], [shares[place] for place in wrong], "s", color=ACCENT,
                      markersize=9, fillstyle="none", label="noisy measurement")  # fmt: skip
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


def cost(study: Study) -> Figure | None:
    """Rungs from cheap to dear: how many trials came there and what became of them, and the work; None without time."""
    rungs = spent(study)
    whole = sum(row.seconds for row in rungs)
    if not whole:
        return None
    scale, unit = _unit(max(row.seconds for row in rungs))
    with plt.rc_context(NAMING):
        figure, (left, right) = plt.subplots(
            1, 2, figsize=(9.2, 1.5 + 0.38 * len(rungs)), layout="constrained", sharey=True
        )
        for place, row in enumerate(rungs):
            at = 0
            for state, look in ENDINGS.items():
                went_on = row.came - sum(row.ended.values())
                many = went_on if state == "went on" else row.ended.get(state, 0)
                left.barh(place, many, left=at, height=0.66, **look)
                at += many
            left.annotate(f"{row.came:,}", (at, place), xytext=(4, 0), textcoords="offset points", va="center",
                          fontsize=8)  # fmt: skip
            right.barh(place, row.seconds / scale, height=0.66, color=DARK)
            right.annotate(_percent(row.seconds / whole), (row.seconds / scale, place), xytext=(4, 0),
                           textcoords="offset points", va="center", fontsize=8)  # fmt: skip
        left.set_yticks(range(len(rungs)), [row.title for row in rungs])
        left.set_ylim(len(rungs) - 0.4, -0.6)
        left.xaxis.set_major_locator(MaxNLocator(integer=True))
        for axes in (left, right):
            axes.grid(visible=False, axis="y")
            axes.margins(x=0.12)
        left.set(xlabel="trials that reached the fidelity")
        right.set(xlabel=f"work of the trials that ended there, {unit}")
        left.set_title("How each fidelity sorted out trials")
        right.set_title("and what they cost")
        for state, look in ENDINGS.items():
            if state == "went on" or any(row.ended.get(state) for row in rungs):
                left.barh(0, 0, label="went on, or complete" if state == "went on" else state, **look)
        figure.legend(loc="outside lower center", ncols=4, fontsize=8.5)
    return done(figure)


def _percent(share: float) -> str:
    return "< 1 %" if 0 < share < 0.005 else f"{100 * share:.0f} %"


def _unit(seconds: float) -> tuple[float, str]:
    """What to divide by, and its name."""
    if seconds < 180:
        return 1.0, "seconds"
    return (60.0, "minutes") if seconds < 3 * 3600 else (3600.0, "hours")
