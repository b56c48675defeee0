"""Show the effects of pruning: what was removed, the loss of accuracy, and the gain in measured time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, PercentFormatter

from edgekit.core.artifacts import Artifact
from edgekit.core.schema.pruning import PruneLatencies, PruneStep, SparsityPattern, StepLatency, TimedCut
from edgekit.report.figures import (
    ACCENT,
    DARK,
    MID,
    PRECISION_MARKERS,
    STYLE,
    TARGET_COLOURS,
    TARGET_FILLS,
    PlotStyle,
    close_figure,
    lowest_accuracy,
)
from edgekit.report.formatting import (
    bound_note,
    bounds_text,
    count,
    faster,
    milliseconds,
    percent,
    percentage_points,
    speedup,
    times,
)
from edgekit.report.tables import Table
from edgekit.stages.benchmark.winners import SPARSITY_DECISION

NOT_TIMED = "–"
"""Shown instead of a time for files that were not timed."""
MAX_OUTPUTS, MAX_INPUTS = 64, 144
"""Number of rows and columns of a layer's weights that are shown, so that each is at least a pixel wide."""
PRECISION_LINES = {"fp32": "-", "fp16": ":", "int8": "--"}
EXPECTED_GAIN_SHARE = 0.8
"""The share of the predicted speed-up that the measured speed-up is expected to reach."""


def table(artifact: Artifact) -> Table:
    """Show every step of structured and unstructured pruning."""
    rows = []
    for way, key in (("channels", "structured_steps"), ("weights", "unstructured_steps")):
        steps: list[PruneStep] = artifact.metrics[key]
        for step in steps:
            rows.append(
                (
                    way,
                    f"{step['from_scratch']}, new weights" if "from_scratch" in step else str(step["step"]),
                    percent(step["validation_accuracy"]),
                    percentage_points(step["drop_pp"]),
                    percentage_points(step["bound_pp"]),
                    count(step["macs"]),
                    count(step["parameters"]),
                    percent(step["sparsity"]),
                    "selected" if step["kept"] else "",
                )
            )
    heads = ("removed", "step", "validation accuracy", "drop, pp", "at most", "MACs", "parameters", "zero weights", "")
    return Table(
        heads, rows, f"{bound_note(artifact.config['budget']['accuracy_confidence'])}; {tuning_text(artifact)}"
    )


def tuning_text(artifact: Artifact) -> str:
    """Say which loss fine-tuning minimised, and why."""
    row = artifact.metrics["tuning"]
    by = f"{row['loss']} under {row['teacher']}" if row["loss"] else "labels alone"
    return f"fine-tuned with {by}: {row['reason']}"


def latencies(artifact: Artifact) -> PruneLatencies:
    """Return `steps` and `sparse` as `stages/prune/latency.py` recorded them.

    Both are empty if nothing was measured.
    """
    return {"steps": [], "sparse": [], **(artifact.metrics["latency"] or {})}


def speed_table(artifact: Artifact) -> Table:
    """Show the predicted and the measured speed-ups of every structured step.

    The prediction is the ratio of MACs. Each measured speed-up comes with its share of the prediction.
    The title says which files could not be converted and therefore were not timed.
    """
    rows = latencies(artifact)["steps"]
    places = list(dict.fromkeys((row["target"], row["precision"]) for row in rows))
    lines = []
    for step in sorted({row["step"] for row in rows} - {0}):
        own = {(row["target"], row["precision"]): row for row in rows if row["step"] == step}
        best = max(own.values(), key=lambda row: row["measured"])
        first = next(iter(own.values()))
        lines.append(
            (
                str(step),
                count(first["macs"]),
                times(first["predicted"]),
                *(_measured(own[place]) if place in own else NOT_TIMED for place in places),
                f"{_measured(best)} {best['target']} {best['precision']}",
            )
        )
    heads = ("step", "MACs", "predicted", *(f"{target} {precision}" for target, precision in places), "best")
    return Table(heads, lines, _title(artifact, "Measured speed-up over step 0 · its share of the predicted speed-up"))


def cuts_table(artifact: Artifact) -> Table:
    """Show every timed cut that significantly saves time, with the chosen cuts marked.

    A cut leaves fewer channels in one group of layers. The table is empty if channels are removed by a ratio instead.
    """
    rows: list[TimedCut] = artifact.metrics.get("cuts", [])
    if not rows:
        replayed = artifact.metrics.get("replayed", False)
        why = "the cuts come from a record" if replayed else "channels are removed by prune.ratio"
        return Table((), [], f"No cut was timed: {why}")
    lines = [
        (
            str(row["step"]),
            row["group"],
            str(row["width"]),
            f"{row['of_before']:.3f} ({bounds_text(row['low'], row['high'])})",
            f"{row['of_student']:.3f}",
            "" if row["validation_accuracy"] is None else percent(row["validation_accuracy"]),
            "taken" if row["taken"] else "",
        )
        for row in rows
        if row["high"] < 1
    ]
    slower = len(rows) - len(lines)
    heads = (
        "step",
        "channels of",
        "left",
        "p50, relative to the step before",
        "to the student",
        "before fine-tuning",
        "",
    )
    title = (
        f"{len(rows)} cuts timed for {rows[0]['target']} {rows[0]['precision']}; {slower} are not significantly faster"
    )
    return Table(heads, lines, title)


def zeros_table(artifact: Artifact) -> Table:
    """Show the sparse network compared with its dense student, converted and timed together."""
    rows = [
        (
            f"{row['target']} {row['precision']}",
            *map(count, (row["dense_bytes"], row["sparse_bytes"])),
            *map(count, (row["dense_zipped_bytes"], row["sparse_zipped_bytes"])),
            percent(row["sparse_zipped_bytes"] / row["dense_zipped_bytes"]),
            *map(milliseconds, (row["dense_p50_ms"], row["sparse_p50_ms"])),
            f"{times(row['measured'])} ({bounds_text(row['measured_low'], row['measured_high'])})",
            faster(row["measured"], row["measured_low"], row["measured_high"]),
        )
        for row in latencies(artifact)["sparse"]
    ]
    heads = ("file", "dense, bytes", "sparse", "dense, compressed", "sparse", "share", "dense, ms", "sparse",
             "speed-up", "")  # fmt: skip
    step = (artifact.metrics["latency"] or {}).get("sparse_step", 0)
    share = artifact.metrics["unstructured_steps"][step]["sparsity"]
    return Table(heads, rows, _title(artifact, f"Step {step}: {share:.0%} of the weights are zero"))


def gained_table(benchmark: Artifact) -> Table:
    """Show every sparse variant compared with its dense counterpart: whether it is faster or smaller."""
    decision = next((each for each in benchmark.metrics["decisions"] if each["decision"] == SPARSITY_DECISION), None)
    out = decision["chosen"] if decision else ()
    rows = [
        (
            row["name"],
            row["dense"],
            f"{times(row['ratio'])} ({bounds_text(row['ratio_low'], row['ratio_high'])})",
            percent(row["bytes_share"]) if "bytes_share" in row else "",
            percent(row["zipped_share"]),
            "rejected: no speed-up" if row["name"] in out else "remains a candidate",
        )
        for row in (decision["candidates"] if decision else ())
    ]
    margin = 1 + benchmark.config["tie_margin"]
    title = (
        f"A sparse variant is kept if its whole interval is above {margin:g}, or if its file is smaller by that factor "
        "and it is not slower"
    )
    return Table(("with zeros", "without", "times as fast", "bytes, share", "compressed, share", ""), rows, title)


def patterns(artifact: Artifact) -> list[SparsityPattern]:
    """Return a row for each layer of the sparse network: its name, its share of zeros, and which weights are not zero.

    `shape` is the shape (outputs, inputs * kernel) of all weights. `nonzero` is bool and covers at most the first 64 x
    144 of them.
    """
    from safetensors.numpy import load

    tensors = load(artifact.file("sparse/weights.safetensors").read_bytes())
    rows: list[SparsityPattern] = []
    for name in sorted((name for name in tensors if _is_weight(name, tensors[name])), key=_natural):
        flat = tensors[name].reshape(len(tensors[name]), -1)
        corner = flat[:MAX_OUTPUTS, :MAX_INPUTS] != 0
        rows.append(
            {
                "name": name.removesuffix(".weight"),
                "zeros": float(np.mean(flat == 0)),
                "weights": flat.size,
                "shape": flat.shape,
                "nonzero": corner,
            }
        )
    return rows


def _is_weight(name: str, tensor: np.ndarray) -> bool:
    return name.endswith(".weight") and tensor.ndim > 1


def _natural(name: str) -> list[tuple[int, int | str]]:
    """Return a sort key that puts `blocks.2` before `blocks.10`."""
    return [(0, int(part)) if part.isdigit() else (1, part) for part in name.split(".")]


def _measured(row: StepLatency) -> str:
    ends = (row["measured"], row["measured_low"], row["measured_high"])
    return f"{speedup(*ends)} · {row['gain_share']:.2f}"


def _title(artifact: Artifact, text: str) -> str:
    latency = artifact.metrics["latency"]
    if latency is None:
        return "Not measured: prune.measure is false"
    if "failed" in latency:
        return f"Not measured: {latency['failed']}"
    lost = [
        f"{row['model']} {row['target']} {row['precision']}: {row['reason']}" for row in latency.get("left_out", [])
    ]
    return "; not timed: ".join([text, *lost])


def figure(structured: Sequence[PruneStep], unstructured: Sequence[PruneStep], floor: float) -> Figure:
    """Draw accuracy against MACs and against sparsity, with the selected step marked.

    A whisker reaches down to the lowest accuracy that the samples do not rule out. A step is inside the budget only if
    its whisker does not cross the budget's line.
    """
    with plt.rc_context(STYLE):
        figure, (left, right) = plt.subplots(1, 2, figsize=(7.6, 3.1), layout="constrained", sharey=True)
        _draw_steps(left, [row["macs"] / 1e6 for row in structured], structured, floor)
        left.set(xlabel="multiply-adds, millions", ylabel="validation accuracy", xlim=(0, None))
        left.set_title("Channels removed")
        left.invert_xaxis()
        _draw_steps(right, [row["sparsity"] for row in unstructured], unstructured, floor)
        right.set(xlabel="zero weights, share")
        right.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        right.set_title("Weights zeroed")
        left.yaxis.set_major_formatter(PercentFormatter(1, decimals=1))
        left.margins(y=0.18)
        figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return close_figure(figure)


def _draw_steps(axes: Axes, x: Sequence[float], rows: Sequence[PruneStep], floor: float) -> None:
    y = [row["validation_accuracy"] for row in rows]
    axes.vlines(
        x, [lowest_accuracy(row) for row in rows], y, color=MID, linewidth=2, label="not ruled out by the samples"
    )
    axes.plot(x, y, "-o", color=DARK, markersize=5)
    selected = next(index for index, row in enumerate(rows) if row["kept"])
    axes.plot([x[selected]], [y[selected]], "o", markersize=12, markerfacecolor="none", color=ACCENT, label="selected")
    axes.axhline(floor, color="#333333", linewidth=1, linestyle="--", label="accuracy budget")
    for row, across, up in zip(rows, x, y, strict=True):
        axes.annotate(
            f"{row['step']}", (across, up), xytext=(0, 8), textcoords="offset points", ha="center", fontsize=8
        )


def cost_figure(steps: Sequence[PruneStep], latencies: Sequence[StepLatency], floor: float) -> Figure:
    """Draw the accuracy of every structured step against its MACs, and against its measured p50 on every target."""
    accuracy = {row["step"]: row["validation_accuracy"] for row in steps}
    with plt.rc_context(STYLE):
        figure, (left, right) = plt.subplots(1, 2, figsize=(7.6, 3.7), layout="constrained", sharey=True)
        left.plot([row["macs"] / 1e6 for row in steps], list(accuracy.values()), "-o", color=DARK, markersize=5)
        for row in steps:
            place = (row["macs"] / 1e6, row["validation_accuracy"])
            left.annotate(str(row["step"]), place, xytext=(0, 8), textcoords="offset points", ha="center", fontsize=8)
        for target, precision, rows in _series(latencies):
            look = _look(target, precision)
            values = [accuracy[row["step"]] for row in rows]
            right.plot([row["p50_ms"] for row in rows], values, label=f"{target} {precision}", **look)
        for axes in (left, right):
            axes.margins(y=0.18)
            axes.axhline(floor, color="#333333", linewidth=1, linestyle="-.")
        left.annotate(
            "accuracy budget", (0.03, floor), xycoords=("axes fraction", "data"), xytext=(0, 3),
            textcoords="offset points", fontsize=8,
        )  # fmt: skip
        left.set(xlabel="multiply-adds, millions (number: step)", ylabel="validation accuracy", xlim=(0, None))
        left.set_title("What is predicted")
        left.yaxis.set_major_formatter(PercentFormatter(1, decimals=1))
        right.set(xlabel="p50 of one call, ms (log scale)", xscale="log")
        right.set_title("What is measured")
        if latencies:
            _plain_log(right)
        else:
            right.text(0.5, 0.5, "not measured", transform=right.transAxes, ha="center", fontsize=9)
            right.xaxis.set_major_formatter(NullFormatter())
            right.xaxis.set_minor_formatter(NullFormatter())
        figure.legend(*right.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return close_figure(figure)


def speed_figure(latencies: Sequence[StepLatency]) -> Figure:
    """Draw the measured speed-up of every structured step against the one predicted from MACs.

    The two agree where a point lies on the continuous line.
    """
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
        series = list(_series(latencies))
        most = max([row["predicted"] for row in latencies], default=1.0)
        line = np.array([1.0, 1.08 * most])
        axes.plot(line, line, color="#333333", linewidth=1, label="all of the gain")
        axes.plot(
            line,
            EXPECTED_GAIN_SHARE * line,
            color="#333333",
            linewidth=1,
            linestyle=":",
            label=f"{EXPECTED_GAIN_SHARE:.0%}",
        )
        for number, (target, precision, rows) in enumerate(series):
            aside = (number - (len(series) - 1) / 2) * 0.009 * most  # keeps the whiskers of different files apart
            x = [row["predicted"] + (aside if row["step"] else 0) for row in rows]
            y = [row["measured"] for row in rows]
            ends = [[row["measured"] - row["measured_low"] for row in rows],
                    [row["measured_high"] - row["measured"] for row in rows]]  # fmt: skip
            look = {**_look(target, precision), "linewidth": 0.8}
            axes.errorbar(x, y, yerr=ends, elinewidth=1, capsize=2, label=f"{target} {precision}", **look)
        axes.set(xlabel="predicted speed-up: multiply-adds of step 0 over the step's, ×")
        axes.set(ylabel="measured speed-up over step 0, ×")
        axes.set_title("Predicted and measured speed-up of every step")
        axes.legend(loc="upper left", fontsize=8)
    return close_figure(figure)


def patterns_figure(layers: Sequence[SparsityPattern], most: int = 4) -> Figure:
    """Draw maps of the weights of some layers, black where a weight remains, and the sparsity of all layers below."""
    shown = [layers[place] for place in np.unique(np.linspace(0, len(layers) - 1, min(most, len(layers))).astype(int))]
    height = 0.19 * len(layers) + 1.0
    with plt.rc_context(STYLE):
        figure = plt.figure(figsize=(7.6, 2.7 + height), layout="constrained")
        parts: Any = figure.subfigures(2, 1, height_ratios=[2.7, height])
        top, bottom = parts
        for axes, row in zip(np.atleast_1d(top.subplots(1, len(shown))), shown, strict=True):
            _map(axes, row)
        axes = bottom.subplots()
        rows = list(layers)[::-1]
        bars = axes.barh([row["name"] for row in rows], [row["zeros"] for row in rows], color=DARK)
        axes.bar_label(bars, [f"{row['zeros']:.0%} of {row['weights']:,}" for row in rows], padding=3, fontsize=8)
        axes.set(xlabel="zero weights, share of the layer", xlim=(0, 1.25), ylim=(-0.6, len(rows) - 0.4))
        axes.set_xticks([0, 0.25, 0.5, 0.75, 1.0])
        axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        axes.tick_params(axis="y", labelsize=8)
        axes.set_title("Sparsity of every layer")
        axes.grid(axis="y", visible=False)
    return close_figure(figure)


def _map(axes: Axes, row: SparsityPattern) -> None:
    outputs, inputs = row["nonzero"].shape
    axes.imshow(row["nonzero"], cmap="binary", vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    of = "" if (outputs, inputs) == tuple(row["shape"]) else f"\n(first of {row['shape'][0]} × {row['shape'][1]})"
    axes.set_title(f"{row['name']}\n{row['zeros']:.0%} zero", fontsize=9)
    axes.set_xlabel(f"{inputs} in · k · k{of}", fontsize=8)
    axes.set_ylabel(f"{outputs} out-channels", fontsize=8)
    axes.set(xticks=[], yticks=[])
    axes.grid(visible=False)
    for side in ("top", "right", "bottom", "left"):
        axes.spines[side].set(visible=True, color=ACCENT)


def _series(latencies: Sequence[StepLatency]) -> Iterator[tuple[str, str, list[StepLatency]]]:
    """Yield the rows by target and precision, in order."""
    for target, precision in dict.fromkeys((row["target"], row["precision"]) for row in latencies):
        yield target, precision, [row for row in latencies if (row["target"], row["precision"]) == (target, precision)]


def _look(target: str, precision: str) -> PlotStyle:
    look: PlotStyle = {
        "color": TARGET_COLOURS[target],
        "marker": PRECISION_MARKERS[precision],
        "fillstyle": TARGET_FILLS[target],
    }
    return {**look, "linestyle": PRECISION_LINES[precision], "markersize": 6, "linewidth": 1.1}


def _plain_log(axes: Axes) -> None:
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 3, 5)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
