"""Draw the figures of a study: its front, its options, the growth of the front, and the cost of each fidelity."""

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
from edgekit.report.figures import ACCENT, DARK, PLAIN_TEXT_STYLE, PlotStyle, close_figure, label_points, plain_ticks
from edgekit.report.formatting import shorten_middle
from edgekit.report.search import recommend, studies
from edgekit.report.search.importances import Importances
from edgekit.report.search.objectives import StudyObjective
from edgekit.report.search.studies import Study, objective_value, parameter_text
from edgekit.report.search.words import work_by_fidelity

LOG_SCALE_RANGE = 3.0
"""An axis is logarithmic if its largest value is at least this many times the smallest."""
MAX_PAIRS, MAX_TICKS = 6, 5
KIND_STYLES: dict[str, tuple[str, PlotStyle]] = {
    "over": ("over the budget", {"marker": "x", "color": "#888888", "markersize": 5, "alpha": 0.8}),
    "inside": ("inside the budget", {"marker": "o", "color": DARK, "markersize": 5, "fillstyle": "none"}),
    "front": ("on the front", {"marker": "D", "color": ACCENT, "markersize": 5.5, "markeredgecolor": "#333333",
                               "markeredgewidth": 0.6}),
}  # fmt: skip
"""Label and style of each kind of trial, in drawing order. Markers distinguish the kinds in greyscale, too."""
MAX_OPTIONS = 14
MAX_AXES = 9
LINE_STYLES: dict[str, tuple[str, dict[str, Any]]] = {
    "rest": ("ruled out early, or failed", {"color": "#bbbbbb", "linewidth": 0.7, "linestyle": ":"}),
    "over": ("complete, over the budget", {"color": "#999999", "linewidth": 0.8, "linestyle": "--"}),
    "inside": ("inside the budget", {"color": DARK, "linewidth": 0.9, "alpha": 0.75}),
    "front": ("on the front", {"color": ACCENT, "linewidth": 2.2, "marker": "D", "markersize": 4}),
}
MAX_TICK_LENGTH = 22
THIN_LINES_ABOVE = 8
"""If there are more lines of a kind than this, they are drawn thinner."""
MISSING_OPTION_Y = -0.08
ENDING_STYLES: dict[str, PlotStyle] = {
    "infeasible": {"color": "#bbbbbb", "hatch": "///", "edgecolor": "white"},
    "stopped": {"color": "#56B4E9", "hatch": "...", "edgecolor": "white"},
    "failed": {"color": ACCENT, "hatch": "xxx", "edgecolor": "white"},
    "went on": {"color": DARK},
}
"""Outcomes of the trials that reached a fidelity. Hatches distinguish them in greyscale, too."""


def front(study: Study) -> Figure | None:
    """Draw each pair of objectives, with the recommended trials numbered."""
    titles_by_number = {point.number: point.title.lower() for point in recommend.points(study)}
    on_front = {each["number"] for each in study.front}
    points = []
    for trial in study.complete:
        kind = _kind(trial, on_front)
        row: dict[str, Any] = {"number": trial["number"], "kind": kind, "values": [], "lows": [], "highs": []}
        for each in study.objectives:
            own = objective_value(trial, each)
            low, high = trial["intervals"][each.place] or (own, own)
            for key, end in (("values", own), ("lows", low), ("highs", high)):
                row[key].append(each.scaled(end))
        points.append(row)
    return draw_front([_axis(study, each) for each in study.objectives], points, titles_by_number)


def _axis(study: Study, objective: StudyObjective) -> dict[str, Any]:
    limit = limit_of(study, objective)
    return {
        "heading": objective.heading,
        "log": objective.name != "accuracy" and _is_wide([objective_value(each, objective) for each in study.complete]),
        "maximize": objective.maximize,
        "limit": None if limit is None else objective.scaled(limit),
        "limit_words": "" if limit is None else objective.shown(limit).replace("\u00a0", " "),
    }


def _is_wide(values: list[float]) -> bool:
    """Return whether a log scale is useful. If all numbers are close together, it would have hardly any ticks."""
    return bool(values) and min(values) > 0 and max(values) >= LOG_SCALE_RANGE * min(values)


def limit_of(study: Study, objective: StudyObjective) -> float | None:
    """Return the budget's limit for an objective, or None if there is none.

    A limit on accuracy is known only if the study knows the accuracy of the baseline. A limit on p50 that is relative
    to a reference model is not returned, because it is not a fixed number of milliseconds.
    """
    budget = study.row["budget"]
    if objective.name != "accuracy":
        limits = Budget.model_validate(budget).limits(objective.target or "")
        return limits.latency_p50_ms if objective.name == "p50_ms" else limits.max_bytes()
    baseline, drop = study.row.get("baseline_accuracy"), budget.get("accuracy_drop_pp")
    return None if baseline is None or drop is None else baseline - drop / 100


def importances(study: Study, importance_rows: Importances) -> Figure | None:
    """Draw how important each option is for each objective, the most important options first."""
    largest: dict[str, float] = {}
    for row in importance_rows.rows:
        largest[row.key] = max(row.share, largest.get(row.key, 0.0))
    order = sorted(largest, key=lambda key: -largest[key])
    short = studies.option_names(study)
    rows = {
        each.title: {
            short[row.key]: {"share": row.share, "low": row.low, "high": row.high} for row in importance_rows.of(each)
        }
        for each in study.objectives
    }
    return draw_importances([each.title for each in study.objectives], [short[key] for key in order], rows)


def parallel(study: Study, importance_rows: Importances) -> Figure | None:
    """Draw each trial as a line through options and objectives.

    If there are many options, show the most important ones.
    """
    short = studies.option_names(study)
    keys = [key for key in short if any(key in each["parameters"] for each in study.trials)]
    largest = {key: max((row.share for row in importance_rows.rows if row.key == key), default=0.0) for key in keys}
    shown_keys = sorted(keys, key=lambda key: -largest[key])[: max(1, MAX_AXES - len(study.objectives))]
    keys = [key for key in keys if key in shown_keys]
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


def _scaled(trial: TrialRow, objective: StudyObjective) -> float:
    return objective.scaled(objective_value(trial, objective))


class _Scale:
    """The scale of a vertical axis: the position of a value from 0 to 1, and the ticks."""

    def __init__(self, choices: list[Any], low: float, high: float, log: bool) -> None:
        self._choices = [json.dumps(each, sort_keys=True) for each in choices]
        self._low, self._high, self._log = low, high, log and low > 0
        if choices:
            self.ticks = [(self.place(each), parameter_text(each)) for each in choices]
        else:
            ends = dict.fromkeys((low, high))
            self.ticks = [(self.place(each), f"{each:.3g}") for each in ends]

    @classmethod
    def of_option(cls, study: Study, key: str) -> _Scale:
        """Return the scale of an option. If the space has several entries for its key, the scale covers all of them."""
        rows = [each for each in study.row["space"] if each["key"] == key]
        if any("choices" in row for row in rows):
            listed = {json.dumps(each): each for row in rows for each in row.get("choices", ())}
            return cls(list(listed.values()), 0, 1, log=False)
        low, high = min(row["low"] for row in rows), max(row["high"] for row in rows)
        return cls([], low, high, all(row.get("log", False) for row in rows))

    @classmethod
    def of_objective(cls, study: Study, objective: StudyObjective) -> _Scale:
        """Return the scale from the smallest to the largest value of all complete trials."""
        values = [_scaled(each, objective) for each in study.complete]
        return cls([], min(values), max(values), log=objective.name != "accuracy")

    def place(self, value: Any) -> float | None:
        """Return the position of a value from 0 to 1, or None if the trial does not have this value."""
        if value is None and json.dumps(None) not in self._choices:
            return None
        if self._choices:
            text = json.dumps(value, sort_keys=True)
            if text not in self._choices:
                return None
            return self._choices.index(text) / max(1, len(self._choices) - 1)
        ends = (self._low, self._high, max(value, self._low))
        low, high, position = (math.log(each) if self._log else each for each in ends)
        return min(1.0, (position - low) / (high - low)) if high > low else 0.5


def draw_front(
    axes: Sequence[Mapping[str, Any]], points: Sequence[Mapping[str, Any]], descriptions: Mapping[int, str]
) -> Figure | None:
    """Draw a panel for each pair of objectives. Returns None if no trial is complete or there is a single objective.

    Parameters
    ----------
    axes
        One row for each objective: `heading`, `log`, `maximize`, `limit` (None if there is none) and `limit_words`.
    points
        One row for each trial: `number`, `kind`, and by objective `values`, `lows` and `highs` in the axes' units.
    descriptions
        Descriptions of the trials that are numbered in the figure.

    At most `MAX_PAIRS` pairs are drawn. Pairs with the first objective come first.
    """
    pairs = list(combinations(range(len(axes)), 2))[:MAX_PAIRS]
    if not pairs or not points:
        return None
    wide = min(len(pairs), 2)
    high = -(-len(pairs) // wide)
    with plt.rc_context(PLAIN_TEXT_STYLE):
        size = (9.2, 3.7 * high + (0.0 if len(pairs) % 2 == 0 or wide == 1 else 0.1)) if wide == 2 else (7.6, 4.6)
        figure, grid = plt.subplots(high, wide, figsize=size, layout="constrained", squeeze=False)
        panels: list[Axes] = [panel for line in grid for panel in line]
        for panel, (one, other) in zip(panels, pairs, strict=False):
            x, y = (other, one) if axes[one]["maximize"] else (one, other)
            _panel(panel, axes, points, x, y)
        handles = _handles(panels[0], axes)
        words = "\n".join(f"{number}  {text}" for number, text in descriptions.items())
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
        figure.draw_without_rendering()  # the labels are placed in pixels
        for panel, (one, other) in zip(panels, pairs, strict=False):
            x, y = (other, one) if axes[one]["maximize"] else (one, other)
            marked = [(row["values"][x], row["values"][y], str(row["number"])) for row in points
                      if row["number"] in descriptions]  # fmt: skip
            label_points(panel, marked, [(row["values"][x], row["values"][y]) for row in points])
    return close_figure(figure)


def _panel(panel: Axes, axes: Sequence[Mapping[str, Any]], points: Sequence[Mapping[str, Any]], x: int, y: int) -> None:
    for kind, (_, look) in KIND_STYLES.items():
        rows = [row for row in points if row["kind"] == kind]
        if kind == "front":
            _step_line(panel, axes, [row for row in points if row["kind"] != "over"], x, y)
            for row in rows:
                at = row["values"][x], row["values"][y]
                panel.plot([row["lows"][x], row["highs"][x]], [at[1]] * 2, color=ACCENT, linewidth=1, zorder=2.5)
                panel.plot([at[0]] * 2, [row["lows"][y], row["highs"][y]], color=ACCENT, linewidth=1, zorder=2.5)
        panel.plot([row["values"][x] for row in rows], [row["values"][y] for row in rows], linestyle="none",
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
            axis.set_major_locator(MaxNLocator(MAX_TICKS))
    ends = {x: panel.get_xlim(), y: panel.get_ylim()}
    for place, span in ((x, panel.axvspan), (y, panel.axhspan)):
        limit = axes[place]["limit"]
        if limit is not None:
            span(*((ends[place][0], limit) if axes[place]["maximize"] else (limit, ends[place][1])), color="#eeeeee",
                 zorder=0)  # fmt: skip
    panel.set(xlim=ends[x], ylim=ends[y])
    panel.set(xlabel=_axis_label(axes[x]), ylabel=_axis_label(axes[y]))


def _step_line(
    panel: Axes, axes: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]], x: int, y: int
) -> None:
    """Draw the trials that are best in these two objectives alone, as a step line."""
    sign = -1 if axes[y]["maximize"] else 1
    best: list[tuple[float, float]] = []
    for at in sorted({(row["values"][x], row["values"][y]) for row in rows}, key=lambda at: (at[0], sign * at[1])):
        if not best or sign * at[1] < sign * best[-1][1]:
            best.append(at)
    if len(best) > 1:
        panel.step([at[0] for at in best], [at[1] for at in best], where="post", color=ACCENT, linewidth=0.9,
                  linestyle=":", zorder=2)  # fmt: skip


def _handles(panel: Axes, axes: Sequence[Mapping[str, Any]]) -> list[Any]:
    handles = [
        panel.plot([], [], linestyle="none", label=label, **look)[0] for label, look in reversed(KIND_STYLES.values())
    ]
    handles += panel.plot([], [], "-", color=ACCENT, linewidth=1, label="interval, of the front")
    handles += panel.plot([], [], ":", color=ACCENT, linewidth=0.9, label="best of these two alone")
    if limits := [each["limit_words"] for each in axes if each["limit"] is not None]:
        handles += panel.plot(
            [], [], "--", color="#333333", linewidth=1.1, label=f"budget (grey: beyond it): {', '.join(limits)}"
        )
    return handles


def _axis_label(axis: Mapping[str, Any]) -> str:
    return f"{axis['heading']} (log scale)" if axis["log"] else str(axis["heading"])


def draw_importances(
    titles: Sequence[str], options: Sequence[str], rows: Mapping[str, Mapping[str, Mapping[str, float]]]
) -> Figure | None:
    """Draw a panel for each objective with a bar for each option. Returns None if there are no rows.

    `rows` has, by title and option, `share`, `low` and `high` as fractions. An option without a row in any panel is
    left out. If an option has a row in some panels only, the other panels say "unknown" instead of a bar.
    """
    shown = [name for name in options if any(name in rows.get(title, {}) for title in titles)][:MAX_OPTIONS]
    panels = [title for title in titles if rows.get(title)]
    if not shown or not panels:
        return None
    with plt.rc_context(PLAIN_TEXT_STYLE):
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
        grid[0][0].set_yticks(range(len(shown)), [shorten_middle(name, 34) for name in shown])
        grid[0][0].set_ylim(len(shown) - 0.4, -0.6)
        figure.supxlabel("share of the variance that the option explains alone; line: range of this share if a quarter "
                         "of the trials is left out", fontsize=8.5)  # fmt: skip
    return close_figure(figure)


def draw_parallel(axes: Sequence[Mapping[str, Any]], lines: Sequence[Mapping[str, Any]]) -> Figure | None:
    """Draw each trial as a line through its options and objectives. Returns None if there are no trials.

    Parameters
    ----------
    axes
        A row for each axis: `heading`; `ticks`, pairs (position, text) with positions from 0 to 1; and `option`,
        which is True for an option and False for an objective.
    lines
        A row for each trial: its `kind`, and `places`, its position on each axis. A position is None if the trial has
        no such option or value.
    """
    if not lines or len(axes) < 2:
        return None
    with plt.rc_context(PLAIN_TEXT_STYLE):
        figure, panel = plt.subplots(figsize=(max(7.6, 1.08 * len(axes) + 0.6), 4.6), layout="constrained")
        panel.set_axis_off()
        for kind, (label, look) in LINE_STYLES.items():
            rows = [row for row in lines if row["kind"] == kind]
            look = {**look, "linewidth": look["linewidth"] * (0.65 if len(rows) > THIN_LINES_ABOVE else 1)}
            for row in rows:
                _draw_trial_line(panel, row["places"], [axis["option"] for axis in axes], look)
            if rows:
                panel.plot([], [], label=f"{label} ({len(rows)})", **look)
        for place, axis in enumerate(axes):
            panel.plot([place, place], [0, 1], color="#333333", linewidth=1, zorder=3)
            for at, text in axis["ticks"]:
                panel.plot([place - 0.03, place + 0.03], [at, at], color="#333333", linewidth=1, zorder=3)
                panel.annotate(
                    shorten_middle(text, MAX_TICK_LENGTH), (place, at), xytext=(5, 0), textcoords="offset points",
                    va="center", fontsize=7.5, zorder=5,
                    bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.6},
                )  # fmt: skip
            panel.annotate(
                _wrap_heading(axis["heading"]), (place, 1), xytext=(0, 9), textcoords="offset points", ha="center",
                va="bottom", fontsize=8.5, weight="bold",
            )  # fmt: skip
            if axis["option"] and any(row["places"][place] is None for row in lines):
                panel.annotate("none", (place, -0.11), ha="center", va="center", fontsize=7.5, color="#555555")
        panel.set(xlim=(-0.35, len(axes) - 0.3), ylim=(-0.15, 1.0))
        figure.legend(loc="outside lower center", ncols=2, fontsize=8.5)
    return close_figure(figure)


def _bar(axes: Axes, place: int, row: Mapping[str, float] | None) -> None:
    if row is None:
        axes.text(0.02, place, "unknown", va="center", fontsize=7.5, color="#555555", style="italic")
        return
    axes.barh(place, row["share"], height=0.62, color=DARK)
    axes.plot([row["low"], row["high"]], [place, place], color="#333333", linewidth=1.6)
    axes.plot([row["low"], row["high"]], [place, place], "|", color="#333333", markersize=6)
    axes.annotate(f"{row['share']:.0%}", (max(row["share"], row["high"]), place), xytext=(4, 0),
                  textcoords="offset points", va="center", fontsize=8)  # fmt: skip


def _draw_trial_line(
    panel: Axes, places: Sequence[float | None], options: Sequence[bool], look: Mapping[str, Any]
) -> None:
    """Draw the line of a trial.

    It passes below the axes of options that the trial lacks, and it ends where objectives are missing.
    """
    missing = [MISSING_OPTION_Y if option else float("nan") for option in options]
    heights = [lack if each is None else each for each, lack in zip(places, missing, strict=True)]
    panel.plot(range(len(places)), heights, zorder=2, **look)


def _wrap_heading(heading: str) -> str:
    """Wrap a heading into lines of about 14 characters, at spaces, dots and underscores."""
    lines = [""]
    for part in heading.replace("_", "_\u200b").replace(" ", " \u200b").replace(".", ".\u200b").split("\u200b"):
        if lines[-1] and len(lines[-1]) + len(part.strip()) > 14:
            lines.append("")
        lines[-1] += part
    return "\n".join(line.strip() for line in lines)


def growth(study: Study) -> Figure | None:
    """Draw the hypervolume of the front after each batch, as a share of the last one, or return None if that is 0."""
    batches = study.row["batches"]
    last = batches[-1]["hypervolume"] if batches else 0.0
    if not last:
        return None
    shares = [row["hypervolume"] / last for row in batches]
    scale, unit = _unit(batches[-1]["seconds"])
    with plt.rc_context(PLAIN_TEXT_STYLE):
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
        left.set(xlabel="trials", ylabel="hypervolume, relative to the last")
        right.set(xlabel=f"time since the study began, {unit}")
        left.set_title("How the front grew")
    return close_figure(figure)


def cost(study: Study) -> Figure | None:
    """Draw, for each fidelity, the outcomes of its trials and their work. Return None if no time was recorded."""
    fidelities = work_by_fidelity(study)
    whole = sum(row.seconds for row in fidelities)
    if not whole:
        return None
    scale, unit = _unit(max(row.seconds for row in fidelities))
    with plt.rc_context(PLAIN_TEXT_STYLE):
        figure, (left, right) = plt.subplots(
            1, 2, figsize=(9.2, 1.5 + 0.38 * len(fidelities)), layout="constrained", sharey=True
        )
        for place, row in enumerate(fidelities):
            at = 0
            for state, look in ENDING_STYLES.items():
                went_on = row.came - sum(row.ended.values())
                many = went_on if state == "went on" else row.ended.get(state, 0)
                left.barh(place, many, left=at, height=0.66, **look)
                at += many
            left.annotate(f"{row.came:,}", (at, place), xytext=(4, 0), textcoords="offset points", va="center",
                          fontsize=8)  # fmt: skip
            right.barh(place, row.seconds / scale, height=0.66, color=DARK)
            right.annotate(_percent(row.seconds / whole), (row.seconds / scale, place), xytext=(4, 0),
                           textcoords="offset points", va="center", fontsize=8)  # fmt: skip
        left.set_yticks(range(len(fidelities)), [row.title for row in fidelities])
        left.set_ylim(len(fidelities) - 0.4, -0.6)
        left.xaxis.set_major_locator(MaxNLocator(integer=True))
        for axes in (left, right):
            axes.grid(visible=False, axis="y")
            axes.margins(x=0.12)
        left.set(xlabel="trials that reached the fidelity")
        right.set(xlabel=f"work of the trials that ended there, {unit}")
        left.set_title("Outcomes of the trials at each fidelity")
        right.set_title("Work at each fidelity")
        for state, look in ENDING_STYLES.items():
            if state == "went on" or any(row.ended.get(state) for row in fidelities):
                left.barh(0, 0, label="went on, or complete" if state == "went on" else state, **look)
        figure.legend(loc="outside lower center", ncols=4, fontsize=8.5)
    return close_figure(figure)


def _percent(share: float) -> str:
    return "< 1 %" if 0 < share < 0.005 else f"{100 * share:.0f} %"


def _unit(seconds: float) -> tuple[float, str]:
    """Return the divisor for a duration, and the name of its unit."""
    if seconds < 180:
        return 1.0, "seconds"
    return (60.0, "minutes") if seconds < 3 * 3600 else (3600.0, "hours")
