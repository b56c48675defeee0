"""Show how the time of a call is spent: the baseline, its runtimes, operators, roofline and predicted speed-ups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from edgekit.core.artifacts import Artifact
from edgekit.core.schema.profile import LayerTime, Operator, PredictedSpeedup, RuntimeTime
from edgekit.core.schema.result import Result
from edgekit.measure import forecast
from edgekit.measure.forecast import EAGER, RUNTIMES
from edgekit.report.figures import ACCENT, DARK, LIGHT, MID, STYLE, Picture, close_figure, picture, plain_ticks
from edgekit.report.formatting import bounds_text, count, milliseconds, percent, ratio_text, times
from edgekit.report.tables import Grid, Line, Table, grid
from edgekit.stages.profile.session import COLD, PARTS

PART_ORDER = (*COLD, *PARTS)
"""The parts of a session in their order, which the records of a session do not keep. The parts from `queue` on belong
to each call."""
PART_STYLES = (
    (LIGHT, "///"),
    (MID, "..."),
    (DARK, ""),
    (ACCENT, "\\\\\\"),
    ("#999999", "xxx"),
    ("#DDDDDD", "---"),
    (MID, ""),
)
TITLES = {"pytorch": EAGER, **RUNTIMES}


def table(artifact: Artifact) -> Table:
    """Show accuracy, cost and latency of the baseline, before anything is changed."""
    metrics = artifact.metrics
    latency = metrics["latency"]["total"]
    rows = [
        ("validation accuracy", percent(metrics["validation_accuracy"])),
        ("parameters", count(metrics["parameters"])),
        ("multiply-adds (MACs)", count(metrics["macs"])),
        ("weights file, bytes", count(metrics["file_bytes"])),
        *((f"p{rank}, ms", milliseconds(latency[f"p{rank}_ms"])) for rank in (50, 90, 95, 99)),
        ("throughput, calls/s", count(latency["throughput_per_s"])),
    ]
    return Table((f"baseline, {metrics['ways'][0]['way']}, batch 1", "value"), rows)


def session_table(artifact: Artifact) -> Table:
    """Show one session, from the start of the process to its last answer, part by part."""
    session = artifact.metrics["session"]
    rows = [
        (name, milliseconds(value), f"{value / session['whole_ms']:.1%}") for name, value in session["parts_ms"].items()
    ]
    rows.append(("all parts", milliseconds(sum(session["parts_ms"].values())), f"{session['covered']:.2%}"))
    rows.append(("measured from outside", milliseconds(session["whole_ms"]), ""))
    stamped = session["stamped"]
    rows.append(
        (
            "a call with timestamps, relative to one without",
            times(stamped["ratio"]),
            bounds_text(stamped["low"], stamped["high"]),
        )
    )
    return Table((f"one process, {session['calls']} answers", "ms", "share"), rows)


def runtimes_table(artifact: Artifact) -> Table:
    """Show the latency of the unmodified float network on every runtime."""
    rows = [
        (
            row["way"],
            milliseconds(row.get("p50_ms")),
            times(row.get("ratio")),
            bounds_text(row["ratio_low"], row["ratio_high"]) if "ratio" in row else "",
            count(row["bytes"]) if row.get("bytes") else "",
            row.get("reason", ""),
        )
        for row in artifact.metrics["ways"]
    ]
    over = "× eager" if artifact.metrics["ways"][0]["way"] == forecast.EAGER else "× baseline"
    return Table(("unmodified, float32", "p50, ms", over, "interval", "bytes", ""), rows)


def steps_table(artifact: Artifact) -> Table:
    """Show the recommended steps, sorted by the limiting factor and then by the predicted gain."""
    rows = [
        (place, row["title"], times(row["speedup"]), row["where"], row["why"])
        for place, row in enumerate(artifact.metrics["diagnosis"]["steps"], start=1)
    ]
    return Table(("", "next step", "speed-up of a call", "where", "because"), rows)


def predicted_rows(benchmark: Artifact) -> list[PredictedSpeedup]:
    """Return the speed-up that the profile stage predicted for each fp32 and int8 variant, and the measured one.

    The result is empty if the two stages ran on different machines.
    """
    profile = benchmark.ancestor("profile").metrics
    conditions = [metrics["conditions"] for metrics in (profile, benchmark.metrics)]
    if any(conditions[0][name] != conditions[1][name] for name in ("host", "cpu", "cores")):
        return []
    costs = {"baseline": profile}
    if (distilled := benchmark.find_ancestor("distill")) and (pruned := benchmark.find_ancestor("prune")):
        kept_step = next((row for row in pruned.metrics["structured_steps"] if row["kept"]), None)
        costs |= {"student": distilled.metrics["student_cost"], **({"pruned": kept_step} if kept_step else {})}
    costs_by_model = {
        name: {"macs": cost["macs"], "moved": cost["weight_bytes"] + cost["activation_bytes"]}
        for name, cost in costs.items()
    }
    return forecast.compare_with_measured(profile, benchmark.metrics["rows"], costs_by_model)


def section(profile: Mapping[str, Any], result: Result, predicted: Sequence[PredictedSpeedup]) -> dict[str, Any]:
    """Return the entries `text`, `disturbed` and `grids` of the page, as far as the profile's metrics allow.

    `predicted` has the predicted and measured speed-ups. It is empty if the profile measured no runtime.
    """
    diagnosis = profile.get("diagnosis", {})
    grids = [
        session_grid(profile),
        parts_grid(profile),
        causes_grid(profile),
        steps_grid(profile),
        predicted_grid(predicted, result),
        execute_grid(result),
    ]
    return {
        "text": diagnosis.get("text", ""),
        "disturbed": "; ".join(profile.get("conditions", {}).get("disturbed", [])),
        "grids": [each for each in grids if each is not None],
    }


def session_grid(profile: Mapping[str, Any]) -> Grid | None:
    """Show one process from its start to its last answer, part by part, beside its duration measured from outside."""
    session = profile.get("session", {})
    if not session:
        return None
    whole_ms, parts_ms = session["whole_ms"], session["parts_ms"]
    cold_ms = sum(parts_ms[name] for name in COLD)
    rows = [
        (f"{name}, {count(session['calls'])} calls" if name in PARTS else name, parts_ms[name])
        for name in sorted(parts_ms, key=_place)
    ]
    rows += [("all parts", sum(parts_ms.values())), ("of which before the first answer", cold_ms)]
    cells = [(name, milliseconds(value_ms), f"{value_ms / whole_ms:.1%}") for name, value_ms in rows]
    cells.append(("measured from outside", milliseconds(whole_ms), ""))
    if stamped := session.get("stamped"):
        interval = bounds_text(stamped["low"], stamped["high"])
        cells.append(("a call with timestamps, relative to one without", times(stamped["ratio"]), interval))
    columns = ("part of the session", "ms", "share")
    caption = (
        f"Before: one process of the baseline, from its start to the last of its {count(session['calls'])} answers"
    )
    return grid(caption, columns, cells, "ms|share")


def parts_grid(profile: Mapping[str, Any]) -> Grid | None:
    """Show one call of the baseline, part by part."""
    latency = profile.get("latency", {})
    if "total" not in latency:
        return None
    names = [*sorted(set(latency) - {"total"}, key=_place), "total"]
    rows = [
        (
            name if name != "total" else "the whole call",
            *(milliseconds(latency[name].get(key)) for key in ("mean_ms", "p50_ms", "p95_ms", "p99_ms")),
            f"{latency[name]['share']:.1%}" if "share" in latency[name] else "–",
        )
        for name in names
    ]
    columns = ("part", "mean, ms", "p50, ms", "p95, ms", "p99, ms", "share of the mean")
    return grid("Before: one call of the baseline, from raw sample to class", columns, rows, "|".join(columns[1:]))


def causes_grid(profile: Mapping[str, Any]) -> Grid | None:
    """Show the causes to which the diagnosis attributes the time, with the shortest time that this machine allows."""
    diagnosis = profile.get("diagnosis", {})
    shares = diagnosis.get("shares", {})
    floors_ms = diagnosis.get("floors_ms", {})
    rows = [
        (name, f"{share:.1%}", milliseconds(floors_ms.get(name)))
        for name, share in sorted(shares.items(), key=lambda item: -item[1])
    ]
    columns = ("cause", "share of a call", "at the limits of the machine, ms")
    return (
        grid("Before: what the time of a call is spent on, an estimate", columns, rows, "|".join(columns[1:]))
        if rows
        else None
    )


def steps_grid(profile: Mapping[str, Any]) -> Grid | None:
    """Show the steps that the diagnosis advised, sorted by the limiting factor and then by the predicted gain."""
    advised = profile.get("diagnosis", {}).get("steps", [])
    rows = [(step["title"], step["where"], times(step["speedup"]), step["why"]) for step in advised]
    columns = ("next step", "where", "predicted", "why")
    return grid("What the diagnosis advised", columns, rows, "predicted", "next step|why") if rows else None


def predicted_grid(predicted: Sequence[PredictedSpeedup], result: Result) -> Grid | None:
    """Show the predicted and the measured speed-up of each variant. Returns None if nothing was predicted."""
    ships = set(result["winners"].values())
    lines = [
        Line(
            (row["name"], times(row["predicted"]), ratio_text(row, "achieved"), times(row["share"])),
            "ships" if row["name"] in ships else "",
        )
        for row in sorted(predicted, key=lambda row: -row["achieved"])
    ]
    columns = ("variant", "predicted", "achieved", "achieved / predicted")
    caption = "Predicted and achieved speed-up over the baseline, for execute alone"
    return Grid(caption, columns, lines, frozenset(columns[1:])) if lines else None


def execute_grid(result: Result) -> Grid | None:
    """Show the latency of the model alone, without the other parts of a call, for the baseline and the winner.

    Both were measured in the same rounds. Returns None if no variant won.
    """
    rows = {row["name"]: row for row in result["variants"]}
    if not result["verdict"]["met"]:
        return None
    before, after = result["variants"][0], rows[result["verdict"]["winner"]]
    columns = ("execute alone", "before", "after", "before / after")
    lines = [
        Line((what, milliseconds(first_ms), milliseconds(then_ms), times(first_ms / then_ms)))
        for what, first_ms, then_ms in (
            ("mean, ms", before["mean_ms"], after["mean_ms"]),
            ("p50, ms", before["p50_ms"], after["p50_ms"]),
            ("p95, ms", before["p95_ms"], after["p95_ms"]),
            ("p99, ms", before["p99_ms"], after["p99_ms"]),
        )
    ]
    caption = (
        f"After: {after['name']} compared with {before['name']} in the same rounds, without preprocess and postprocess"
    )
    return Grid(caption, columns, lines, frozenset(columns[1:]))


def _place(part: str) -> tuple[int, str]:
    return PART_ORDER.index(part) if part in PART_ORDER else len(PART_ORDER), part


def parts_figure(latency: dict[str, dict[str, float]], shares: Mapping[str, float]) -> Figure:
    """Draw one call as a bar of its parts' mean times, with percentiles of the call, and below it the limiting factors.

    The limiting factors are the causes to which the diagnosis attributes the time, with their shares.
    """
    with plt.rc_context(STYLE):
        figure, (parts, causes) = plt.subplots(2, 1, figsize=(7.2, 3.9), layout="constrained")
        values = {name: latency[name]["mean_ms"] for name in PARTS}
        _stack(parts, values, {name: f"{name} {latency[name]['share']:.1%}" for name in PARTS})
        for rank, height in ((50, 0.50), (95, 0.66), (99, 0.82)):
            value = latency["total"][f"p{rank}_ms"]
            parts.axvline(value, color="#333333", linewidth=1, linestyle={50: "-", 95: "--", 99: ":"}[rank])
            parts.annotate(
                f"p{rank} {value:.3g}", (value, height), fontsize=8, xytext=(3, 0), textcoords="offset points"
            )
        right = 1.14 * max(sum(values.values()), latency["total"]["p99_ms"])
        parts.set(ylim=(-0.5, 1.0), xlim=(0, right), xlabel="one call, ms (bar: mean; lines: percentiles)")
        parts.set_title("Where one call of the baseline goes")
        _stack(causes, {name: 100 * share for name, share in shares.items()},
               {name: f"{name} {share:.0%}" for name, share in shares.items()})  # fmt: skip
        causes.set(ylim=(-0.5, 0.5), xlim=(0, 100), xlabel="share of a call in %, with its share of the start-up time")
        causes.set_title("What limits it")
        for axes in (parts, causes):
            axes.set_yticks([])
            axes.grid(axis="y", visible=False)
            axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=8)
    return close_figure(figure)


def _stack(axes: Axes, values: Mapping[str, float], labels: Mapping[str, str]) -> None:
    left = 0.0
    for (name, width), (colour, hatch) in zip(values.items(), cycle(PART_STYLES), strict=False):
        axes.barh(0, width, left=left, color=colour, hatch=hatch, edgecolor="white", label=labels[name])
        left += width


def operators_figure(rows: Sequence[Operator], inside: Mapping[str, Sequence[Operator]], most: int = 6) -> Figure:
    """Draw the time of the slowest operators in ms per call, in PyTorch and on each runtime."""
    shown = {**({"pytorch": rows} if rows else {}), **inside}
    if not shown:
        return _empty_figure("no operators: PyTorch does not run the baseline, and profile.runtimes is false")
    with plt.rc_context(STYLE):
        high = (len(shown) + 1) // 2
        figure, grid = plt.subplots(high, 2, figsize=(9.6, 2.4 * high), layout="constrained", squeeze=False)
        for axes, (target, operators) in zip(grid.flat, shown.items(), strict=False):
            _bars(axes, list(operators), most)
            axes.set_title(TITLES[target])
        for axes in list(grid.flat)[len(shown) :]:
            axes.set_visible(False)
        figure.supxlabel("self time under the profiler, ms a call", fontsize=9)
    return close_figure(figure)


def _empty_figure(why: str) -> Figure:
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(7.2, 0.8), layout="constrained")
        axes.set_axis_off()
        axes.text(0, 0.5, why, va="center")
    return close_figure(figure)


def _bars(axes: Axes, operators: list[Operator], max_bars: int) -> None:
    top = operators[:max_bars][::-1]
    rest = sum(row["self_ms"] for row in operators[max_bars:])
    names = [_short(row["operator"], row["calls"]) for row in top]
    bars = axes.barh(range(len(top)), [row["self_ms"] for row in top], color=DARK)
    axes.bar_label(bars, [f"{row['share']:.0%}" for row in top], padding=3, fontsize=8)
    axes.set_yticks(range(len(top)), names, fontsize=8)
    axes.set_xmargin(0.18)
    axes.grid(axis="y", visible=False)
    if rest:
        axes.annotate(f"all others {rest:.3g} ms", (0.98, 0.06), xycoords="axes fraction", ha="right", fontsize=8)


def _short(name: str, calls: float) -> str:
    name = name.lstrip("_")
    return f"{name if len(name) <= 28 else name[:27] + '…'} ×{calls:.0f}"


def runtimes_figure(rows: Sequence[RuntimeTime]) -> Figure:
    """Draw the p50 of the float network on every runtime with its interval, the fastest at the top."""
    measured = sorted((row for row in rows if "p50_ms" in row), key=lambda row: -row["p50_ms"])
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(7.2, 0.36 * len(measured) + 1.1), layout="constrained")
        values = np.array([row["p50_ms"] for row in measured])
        ends = np.array([[row["p50_ms"] - row["low_ms"], row["high_ms"] - row["p50_ms"]] for row in measured]).T
        axes.barh([row["way"] for row in measured], values, xerr=ends, color=MID, ecolor="#333333", capsize=3)
        for place, row in enumerate(measured):
            label = f"{row['p50_ms']:.3g} ms, {row['ratio']:.2f}×"
            axes.annotate(
                label, (row["high_ms"], place), xytext=(6, 0), textcoords="offset points", va="center", fontsize=8
            )
        axes.set(xlim=(0, 1.3 * max(row["high_ms"] for row in measured)))
        axes.set_xlabel("p50 of one call, ms, one thread (line: 99 % interval; ×: against the unmodified baseline)")
        axes.set_title("The unmodified network on each runtime")
        axes.grid(axis="y", visible=False)
    return close_figure(figure)


def roofline_figure(layers: Sequence[LayerTime], machine: Mapping[str, float]) -> Figure:
    """Draw the rate of every layer against its arithmetic intensity, below the machine's roofline in float and int8.

    Layers without multiplications have no point. Multiply-adds outside of layers are mentioned in the figure.
    """
    shown = [row for row in layers if row["macs"] and row["intensity"]]
    intensity = {row["layer"]: row["intensity"] or 0.0 for row in shown}
    low, high = min([0.1, *intensity.values()]) / 2, 2 * max([25.0, *intensity.values()])
    along = np.geomspace(low, high, 200)
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(7.2, 3.8), layout="constrained")
        for name, key, style in (("float", "gmacs_per_s", "-"), ("int8", "int8_gmacs_per_s", "--")):
            # The layers are drawn for float. In int8, a value takes a quarter of the bytes, so the same layer would lie
            # further to the right.
            roof = np.minimum(machine[key], along * machine["gbytes_per_s"])
            axes.plot(
                along, roof, color="#333333", linestyle=style, label=f"ceiling in {name}: {machine[key]:.0f} GMAC/s"
            )
        for bound, marker, fill in (("compute", "o", DARK), ("memory", "s", "none")):
            rows = [row for row in shown if row["bound"] == bound]
            if not rows:
                continue
            sizes = [20 + 400 * row["ms"] / sum(one["ms"] for one in layers) for row in rows]
            axes.scatter(
                [intensity[row["layer"]] for row in rows], [row["gmacs_per_s"] for row in rows],
                s=sizes, marker=marker, facecolor=fill, edgecolor=DARK, label=f"layer limited by {bound}",
            )  # fmt: skip
        if shown:
            slowest = max(shown, key=lambda row: row["ms"])
            axes.annotate(
                f"{slowest['layer']}, {slowest['ms']:.3g} ms",
                (intensity[slowest["layer"]], slowest["gmacs_per_s"]),
                xytext=(0, -22), textcoords="offset points", ha="center", fontsize=8,
            )  # fmt: skip
        axes.annotate(_unshown(layers), (0.02, 0.97), xycoords="axes fraction", va="top", fontsize=8)
        axes.set(xscale="log", yscale="log", xlim=(low, high), ylabel="multiply-adds, GMAC/s")
        axes.set_xlabel(f"arithmetic intensity, multiply-adds per byte (slope: {machine['gbytes_per_s']:.0f} GB/s)")
        axes.set_title("Every layer on this machine's roofline; area: its share of the time")
        axes.legend(loc="lower right", fontsize=8)
    return close_figure(figure)


def _unshown(layers: Sequence[LayerTime]) -> str:
    """Say what the roofline cannot show. The result is empty if it shows all multiplications."""
    macs = sum(row["macs"] for row in layers)
    if not macs:
        return (
            "no multiply-adds were counted: this is not possible in\n"
            "recurrent layers, nor in files that OpenVINO cannot read"
        )
    share = sum(row["macs"] for row in layers if not row["intensity"]) / macs
    return f"not shown: {share:.0%} of the multiply-adds,\nwhich belong to no layer" if share >= 0.01 else ""


def predicted_figure(rows: Sequence[PredictedSpeedup]) -> Figure:
    """Draw the measured speed-up of each variant against the predicted one. They agree where a point is on the line."""
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(7.2, 3.8), layout="constrained")
        ends = [value for row in rows for value in (row["predicted"], row["achieved_low"], row["achieved_high"])]
        low, high = 0.8 * min(ends), 1.25 * max(ends)
        axes.plot([low, high], [low, high], color="#333333", linewidth=1, label="as predicted")
        for target, marker, colour in (("tflite", "o", DARK), ("openvino", "s", ACCENT), ("onnx", "^", MID)):
            for precision, fill in (("fp32", "none"), ("int8", colour)):
                some = [row for row in rows if (row["target"], row["precision"]) == (target, precision)]
                if not some:
                    continue
                achieved = np.array([row["achieved"] for row in some])
                whisker = np.array([[row["achieved"] - row["achieved_low"], row["achieved_high"] - row["achieved"]]
                                    for row in some]).T  # fmt: skip
                axes.errorbar(
                    [row["predicted"] for row in some], achieved, yerr=whisker, linestyle="none", marker=marker,
                    color=colour, markerfacecolor=fill, capsize=2, label=f"{TITLES[target]} {precision}",
                )  # fmt: skip
        axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high))
        plain_ticks(axes)
        axes.set(xlabel="predicted by notebook 01, × the baseline", ylabel="measured, × the baseline")
        axes.set_title("Predicted and achieved speed-up")
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=8)
    return close_figure(figure)


def pictures(profile: Mapping[str, Any], predicted: Sequence[PredictedSpeedup]) -> dict[str, Picture]:
    """Return the figures of the page. Those of runtimes and predictions are left out if there is no such data."""
    latency, shares = profile["latency"], profile["diagnosis"]["shares"]
    parts = ", ".join(f"{name} {latency[name]['share']:.0%}" for name in latency if name != "total")
    slowest = ", ".join(f"{row['operator']} {row['share']:.0%}" for row in profile["operators"][:3]) or "by runtime"
    drawn = {
        "parts": picture(
            parts_figure(latency, shares), f"One call of the baseline: {parts}", "Before any optimisation."
        ),
        "operators": picture(
            operators_figure(profile["operators"], profile["inside"]),
            f"Time by operator of the baseline: {slowest}",
            "Before any optimisation, by the profiler of each runtime, which slows each call a little.",
        ),
        "roofline": picture(
            roofline_figure(profile["layers"], profile["machine"]),
            "Roofline of the layers",
            "Each layer of the network, and the limits of this machine as measured in the same run.",
        ),
    }
    if ways := profile["ways"]:
        alt, caption = f"One call by each of {len(ways)} runtimes", "The unmodified float network on each runtime."
        drawn["ways"] = picture(runtimes_figure(ways), alt, caption)
    if predicted:
        shares_reached = [row["share"] for row in predicted]
        low, high = times(min(shares_reached)), times(max(shares_reached))
        alt = f"Of {len(predicted)} variants, achieved over predicted speed-up from {low} to {high}"
        caption = (
            "On the line, the prediction came true. Below it, something that is neither arithmetic nor bytes took the "
            "time. Above it, the other costs of a call shrank too."
        )
        drawn["predicted"] = picture(predicted_figure(predicted), alt, caption)
    return drawn
