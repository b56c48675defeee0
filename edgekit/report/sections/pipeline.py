"""Read the network after each finished stage from the sealed artifacts, and draw the figure above each notebook."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Literal

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Polygon

from edgekit.core.artifacts import Artifact
from edgekit.core.config import STAGES
from edgekit.core.schema.pruning import StepLatency
from edgekit.core.schema.training import TimedFile
from edgekit.report.figures import DARK, STYLE, PlotStyle, close_figure
from edgekit.report.formatting import kilobytes, milliseconds

State = Literal["done", "here", "ahead", "left out"]
_METHODS = {"ptq": "PTQ", "qat": "QAT", "mixed": "mixed"}
UNKNOWN = "–"
ROWS = ("network", "size, kB", "accuracy", "p50, ms", "timed on")
LENGTH, POINT, HEIGHT, LINE, MIDDLE = 0.94, 0.10, 0.62, 0.34, 0.52
"""In columns: length, tip and height of an arrow, distance between the rows below it, and position of the words."""
STATE_STYLES: dict[str, PlotStyle] = {
    "done": {"facecolor": "#dddddd", "edgecolor": "#333333", "linewidth": 1},
    "here": {"facecolor": DARK, "edgecolor": "#333333", "linewidth": 1},
    "ahead": {"facecolor": "white", "edgecolor": "#777777", "linewidth": 1, "linestyle": "--"},
    "left out": {"facecolor": "white", "edgecolor": "#bbbbbb", "linewidth": 0.8, "hatch": "////"},
}
"""Styles that differ in lightness, line and hatch, so that they also differ in greyscale."""


@dataclass(frozen=True)
class PipelineStep:
    """A stage, its state in the run, and the network after it. Values that the stage does not know are None.

    `what` names the network or the file, and `timed_on` the interpreter. Before `convert`, the size is that of the
    float32 weights.
    """

    stage: str
    state: State
    what: str = ""
    bytes: int | None = None
    accuracy: float | None = None
    p50_ms: float | None = None
    timed_on: str = ""


def steps_so_far(source: Artifact, stages: Sequence[str]) -> list[PipelineStep]:
    """Return all seven stages, as seen by the stage that reads `source`. `stages` are the stages of this run."""
    reached = stages.index(source.stage) + 1 if source.stage in stages else 0
    steps = []
    for stage in STAGES:
        if stage not in stages:
            steps.append(PipelineStep(stage, "left out"))
        elif stages.index(stage) < reached:
            steps.append(_DONE[stage](source.ancestor(stage).metrics))
        else:
            steps.append(PipelineStep(stage, "here" if stages.index(stage) == reached else "ahead"))
    return steps


def _profile(metrics: Mapping[str, Any]) -> PipelineStep:
    eager, accuracy = metrics["ways"][0], metrics["validation_accuracy"]
    return PipelineStep("profile", "done", "baseline", metrics["file_bytes"], accuracy, eager["p50_ms"], eager["way"])


def _distill(metrics: Mapping[str, Any]) -> PipelineStep:
    timed = next((row["best"] for row in metrics["candidates"] if row["kept"]), None)
    accuracy, size = metrics["accuracy"][metrics["kept"]], metrics["student_cost"]["weight_bytes"]
    return PipelineStep("distill", "done", "student", size, accuracy, *_fastest([timed] if timed else []))


def _prune(metrics: Mapping[str, Any]) -> PipelineStep:
    kept_step = next(row for row in metrics["structured_steps"] if row["kept"])
    timed = (metrics["latency"] or {}).get("steps", [])
    fastest = _fastest([row for row in timed if row["step"] == kept_step["step"]])
    return PipelineStep(
        "prune", "done", "pruned", kept_step["weight_bytes"], kept_step["validation_accuracy"], *fastest
    )


def _quantize(metrics: Mapping[str, Any]) -> PipelineStep:
    method = metrics["method"]
    return PipelineStep("quantize", "done", f"int8, {_METHODS[method]}", accuracy=metrics[f"{method}_accuracy"])


def _convert(metrics: Mapping[str, Any]) -> PipelineStep:
    return PipelineStep("convert", "done", f"smallest of {len(metrics['bytes'])}", min(metrics["bytes"].values()))


def _benchmark(metrics: Mapping[str, Any]) -> PipelineStep:
    winner = next((row for row in metrics["rows"] if row["name"] == metrics["winner"]), None)
    if winner is None:
        return PipelineStep("benchmark", "done", "none in the budget")
    accuracy, p50_ms = winner["accuracy_validation"], winner["p50_ms"]
    where = f"{winner['target']} {winner['precision']}"
    return PipelineStep("benchmark", "done", f"{winner['model']} wins", winner["bytes"], accuracy, p50_ms, where)


def _fastest(files: Sequence[TimedFile | StepLatency]) -> tuple[float | None, str]:
    """Return the p50 of the fastest file that was timed, and its target and precision."""
    if not files:
        return None, ""
    fastest = min(files, key=itemgetter("p50_ms"))
    return fastest["p50_ms"], f"{fastest['target']} {fastest['precision']}"


_DONE: dict[str, Callable[[Mapping[str, Any]], PipelineStep]] = {
    "profile": _profile,
    "distill": _distill,
    "prune": _prune,
    "quantize": _quantize,
    "convert": _convert,
    "benchmark": _benchmark,
}


def figure(steps: Sequence[PipelineStep]) -> Figure:
    """Draw the stages as arrows, with the current one dark and the resulting network below each finished stage."""
    with plt.rc_context(STYLE):
        rows = ROWS if any(step.state == "done" for step in steps) else ()
        figure, axes = plt.subplots(figsize=(8.4, 0.5 + 0.25 * len(rows)), layout="constrained")
        for place, step in enumerate(steps):
            _arrow(axes, place, step)
            if step.state == "done":
                for row, text in enumerate(_values(step)):
                    axes.text(place + MIDDLE, -LINE * (row + 0.6), text, ha="center", va="center", fontsize=8)
        for row, name in enumerate(rows):
            axes.text(-0.08, -LINE * (row + 0.6), name, ha="right", va="center", fontsize=8, color="#555555")
        axes.set(xlim=(-0.85, len(steps) + 0.05), ylim=(-LINE * len(rows) - 0.05, HEIGHT + 0.2))
        axes.axis("off")
    return close_figure(figure)


def _arrow(axes: Axes, place: int, step: PipelineStep) -> None:
    low, high, end = 0.15, 0.15 + HEIGHT, place + LENGTH
    corners = [(place, low), (end, low), (end + POINT, (low + high) / 2), (end, high), (place, high)]
    notch = [(place + POINT, (low + high) / 2)] if place else []
    axes.add_patch(Polygon([*corners, *notch], closed=True, **STATE_STYLES[step.state]))
    words: PlotStyle = {"color": "white", "weight": "bold"} if step.state == "here" else {"color": "#333333"}
    name = f"{place + 1:02d} {step.stage}" if step.state != "left out" else f"{step.stage}\nnot in this run"
    box = {"facecolor": "white", "edgecolor": "none", "pad": 1.0} if step.state == "left out" else None
    axes.text(place + MIDDLE, (low + high) / 2, name, ha="center", va="center", fontsize=8, bbox=box, **words)


def _values(step: PipelineStep) -> list[str]:
    """Return the values below a finished stage, in the order of ROWS."""
    accuracy = UNKNOWN if step.accuracy is None else f"{step.accuracy:.1%}".replace("%", " %")
    return [step.what, kilobytes(step.bytes), accuracy, milliseconds(step.p50_ms), step.timed_on]
