"""Show every variant with its accuracy, size, latency and verdict, and the reference models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, cast

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, PercentFormatter

from edgekit.core.artifacts import Artifact
from edgekit.core.schema.decisions import Decision, DecisionCandidate, is_winner_decision
from edgekit.core.schema.devices import DeviceClass
from edgekit.core.schema.limits import BudgetLimits
from edgekit.core.schema.result import Result
from edgekit.core.schema.variants import AccuracyInterval, BaselineRow, ReferenceModelRow, SecondAccuracy, VariantRow
from edgekit.measure.forecast import baseline_runtime
from edgekit.report.figures import (
    PRECISION_MARKERS,
    STYLE,
    TARGET_COLOURS,
    TARGET_FILLS,
    Picture,
    PlotStyle,
    close_figure,
    lowest_accuracy,
    picture,
)
from edgekit.report.formatting import (
    bound_note,
    bounds_text,
    count,
    faster,
    milliseconds,
    percent,
    percentage_points,
    ratio_text,
    ratio_with_bounds,
    speedup,
    times,
)
from edgekit.report.tables import Column, Grid, Table, build_table, grid_from_columns
from edgekit.stages.benchmark.winners import FEWEST_BYTES, winner_of
from edgekit.targets import LOW_BIT_PRECISIONS

Standing = Literal["baseline", "ships", "inside", "out"]
STANDINGS: tuple[Standing, ...] = ("baseline", "ships", "inside", "out")
"""The order of the table: the baseline, the variants that ship, the other variants inside the budget, and the variants
outside the budget. Each of these groups is sorted by latency."""
STYLE_CLASSES = {"baseline": "", "ships": "ships", "inside": "inside", "out": "out"}
"""Classes of the style sheet, by the variant's standing."""
REFERENCE_COLUMNS: tuple[Column[ReferenceModelRow], ...] = (
    Column("reference model", lambda row: row["name"], numeric=False),
    Column("test", lambda row: percent(row["accuracy_test"])),
    Column("bytes", lambda row: count(row["bytes"])),
    Column("p50, ms", lambda row: milliseconds(row["p50_ms"])),
    Column("p95, ms", lambda row: milliseconds(row["p95_ms"])),
    Column("winner", lambda row: row["winner"] or "–", numeric=False),
    Column("test, pp", lambda row: percentage_points(row["winner_gain_pp"])),
    Column("its bytes", lambda row: times(row["winner_bytes_share"])),
    Column("its speed", lambda row: ratio_text(row, "winner_speedup")),
)


@dataclass(frozen=True)
class VariantLine:
    """One variant. Accuracies are fractions, drops are percentage points. The baseline has no bound and no speed-up."""

    name: str
    standing: Standing
    accuracy_validation: float
    accuracy_test: float
    drop_pp: float
    bound_pp: float | None
    bytes: int
    p50_ms: float
    p95_ms: float
    p99_ms: float
    speedup: tuple[float, float, float] | None
    verdict: str
    second: SecondAccuracy | None = None
    interval: AccuracyInterval | None = None
    device_p50_ms: float | None = None


NAME: Column[VariantLine] = Column("variant", lambda line: line.name, numeric=False)
VERDICT: Column[VariantLine] = Column("verdict", lambda line: line.verdict, numeric=False, breaks=True)
LOCAL_P50: Column[VariantLine] = Column("p50, ms", lambda line: milliseconds(line.p50_ms))
TAILS: tuple[Column[VariantLine], ...] = (
    Column("p95, ms", lambda line: milliseconds(line.p95_ms)),
    Column("p99, ms", lambda line: milliseconds(line.p99_ms)),
)
FIGURES: tuple[Column[VariantLine], ...] = (
    Column("val.", lambda line: percent(line.accuracy_validation)),
    Column("test", lambda line: percent(line.accuracy_test)),
    Column("drop, pp", lambda line: percentage_points(line.drop_pp)),
    Column("at most, pp", lambda line: percentage_points(line.bound_pp)),
    Column("bytes", lambda line: count(line.bytes)),
    LOCAL_P50,
    *TAILS,
    Column("speed-up", lambda line: speedup(*line.speedup) if line.speedup else "1×"),
)


@dataclass(frozen=True)
class Variants:
    """Every variant of a run, the baseline first. `confidence` (a fraction) is the confidence of the bounds.

    `devices` are the devices whose latencies decided, or None if this machine decided.
    """

    lines: tuple[VariantLine, ...]
    confidence: float
    devices: DeviceClass | None = None

    @property
    def plain_figures(self) -> tuple[Column[VariantLine], ...]:
        """The columns for a terminal. If devices decided, this machine's high percentiles are left out."""
        return tuple(column for column in self._all_figures if self.devices is None or column not in TAILS)

    @property
    def _all_figures(self) -> tuple[Column[VariantLine], ...]:
        """All columns except those of the second accuracy metric.

        If devices decided, the column of the deciding device's p50 comes before the column of this machine's p50.
        """
        if self.devices is None:
            return FIGURES
        there = f"p50, ms on {self.devices['slowest'] or self.devices['where']}"
        latencies: tuple[Column[VariantLine], ...] = (
            Column(there, lambda line: milliseconds(line.device_p50_ms)),
            Column("p50, ms here", LOCAL_P50.text),
        )
        at = FIGURES.index(LOCAL_P50)
        return (*FIGURES[:at], *latencies, *FIGURES[at + 1 :])

    @property
    def second(self) -> tuple[Column[VariantLine], ...]:
        """The columns of the task's second accuracy metric. The result is empty if the task has only one metric."""
        metrics = {line.second["metric"] for line in self.lines if line.second}
        return tuple(column for metric in metrics for column in _second(metric))

    @property
    def figures(self) -> tuple[Column[VariantLine], ...]:
        """All columns. Those of intervals and of the second accuracy metric come last, because wide tables scroll."""
        return (*self._all_figures, *self.intervals, *self.second)

    @property
    def intervals(self) -> tuple[Column[VariantLine], ...]:
        """The columns of the intervals of the accuracies, empty if the task has none."""
        confidences = {line.interval["confidence"] for line in self.lines if line.interval}
        return tuple(column for confidence in confidences for column in _intervals(confidence))

    @property
    def caption(self) -> str:
        """The notes that explain the headings."""
        text = f"{bound_note(self.confidence)}; speed-up over the baseline, – if its interval contains 1"
        if self.devices is None:
            return text
        slowest = self.devices["slowest"] or "no device"
        return f"{text}; {slowest} of class {self.devices['where']} decided, all other latencies are of this machine"


def variants_of_result(result: Result) -> Variants:
    """Return the variants of a finished run."""
    confidence = result["budget"]["accuracy_confidence"]
    return _build_variants(
        result["variants"], result["winners"], result["decisions"], confidence, result.get("devices")
    )


def variants_of_benchmark(artifact: Artifact) -> Variants:
    """Return the variants of a sealed benchmark, before there is a result."""
    metrics = artifact.metrics
    confidence = artifact.config["budget"]["accuracy_confidence"]
    return _build_variants(
        metrics["rows"], metrics["winners"], metrics["decisions"], confidence, metrics.get("devices")
    )


def _build_variants(
    rows: Sequence[BaselineRow | VariantRow],
    winners: Mapping[str, str],
    decisions: Sequence[Decision],
    confidence: float,
    devices: DeviceClass | None,
) -> Variants:
    lines = [_baseline(row) if row["target"] == "pytorch" else _variant(row, winners, decisions) for row in rows]
    lines.sort(key=lambda line: (STANDINGS.index(line.standing), line.p50_ms))
    return Variants(tuple(lines), confidence, devices)


def _second(metric: str) -> tuple[Column[VariantLine], ...]:
    return (
        Column(f"val. {metric}", lambda line: percent(line.second and line.second["validation"])),
        Column(f"test {metric}", lambda line: percent(line.second and line.second["test"])),
    )


def _intervals(confidence: float) -> tuple[Column[VariantLine], ...]:
    def text(line: VariantLine, split: Literal["validation", "test"]) -> str:
        each = line.interval
        if each is None:
            return "–"
        low, high = (
            (each["validation_low"], each["validation_high"])
            if split == "validation"
            else (each["test_low"], each["test_high"])
        )
        return f"{percent(low)} to {percent(high)}"

    return (
        Column(f"val., {confidence:.0%} interval", lambda line: text(line, "validation")),
        Column(f"test, {confidence:.0%} interval", lambda line: text(line, "test")),
    )


def _baseline(row: BaselineRow) -> VariantLine:
    return _line(row, "baseline", 0.0, None, None, "baseline")


def _variant(row: VariantRow, winners: Mapping[str, str], decisions: Sequence[Decision]) -> VariantLine:
    standing, verdict = _standing(row, winners, decisions)
    gain = (row["speedup"], row["speedup_low"], row["speedup_high"])
    return _line(row, standing, row["drop_pp"], row["bound_pp"], gain, f"{verdict}{_beside_reference(row)}")


def _beside_reference(row: VariantRow) -> str:
    """If the latency limit is relative, say how the variant's latency compares with that of its reference.

    Otherwise the result is empty.
    """
    relative = row["limits"].get("beside") if "limits" in row else None
    if relative is None:
        return ""
    interval = f"{times(relative['ratio'])} ({bounds_text(relative['ratio_low'], relative['ratio_high'])})"
    return f"; {interval} the time of {relative['name']}, of which {relative['limit']:g} is the limit"


def _line(
    row: BaselineRow | VariantRow,
    standing: Standing,
    drop_pp: float,
    bound_pp: float | None,
    gain: tuple[float, float, float] | None,
    verdict: str,
) -> VariantLine:
    there = cast("VariantRow", row).get("device")
    return VariantLine(
        name=row["name"],
        standing=standing,
        accuracy_validation=row["accuracy_validation"],
        accuracy_test=row["accuracy_test"],
        drop_pp=drop_pp,
        bound_pp=bound_pp,
        bytes=row["bytes"],
        p50_ms=row["p50_ms"],
        p95_ms=row["p95_ms"],
        p99_ms=row["p99_ms"],
        speedup=gain,
        verdict=verdict,
        second=row.get("second_accuracy"),
        interval=row.get("accuracy_interval"),
        device_p50_ms=there["p50_ms"] if there else None,
    )


def _standing(row: VariantRow, winners: Mapping[str, str], decisions: Sequence[Decision]) -> tuple[Standing, str]:
    """Return the standing of a variant, and the text of its verdict, which explains the standing."""
    own = (one for one in decisions if is_winner_decision(one) and one["decision"] == winner_of(row["target"]))
    choice = next(own, None)
    rule = choice["rule"] if choice else ""
    if row["name"] in winners.values():
        return "ships", f"ships for {row['target']}" + (f": {rule.replace('tie:', 'tie, won by')}" if rule else "")
    if not row["inside_budget"]:
        return "out", f"rejected: {'; '.join(row['reasons'])}"
    beside = next((one for one in choice["candidates"] if one["name"] == row["name"]), None) if choice else None
    return "inside", "inside the budget" + (f": {_why_not_winner(beside, rule)}" if beside else "")


def _why_not_winner(row: DecisionCandidate, rule: str) -> str:
    """Return why a variant within the budget did not win."""
    lost = "a file with fewer bytes" if rule == FEWEST_BYTES else "a file of the same size"
    if row["ratio_low"] == row["ratio_high"] == 1.0:
        return f"the fastest, but in a tie with {lost}"
    interval = f"{times(row['ratio'])} ({bounds_text(row['ratio_low'], row['ratio_high'])}) the time of the fastest"
    return f"in a tie with {lost}, {interval}" if row["in_the_tie"] else f"slower, {interval}"


def table(artifact: Artifact) -> Table:
    """Show the baseline and then every variant, those that ship first."""
    variants = variants_of_benchmark(artifact)
    return build_table((NAME, *variants.figures, VERDICT), variants.lines, variants.caption)


def page_grid(result: Result) -> Grid:
    """Show every variant, with the verdict beside the name, because the table is wider than a phone."""
    variants = variants_of_result(result)
    columns = (NAME, VERDICT, *variants.figures)
    return grid_from_columns(variants.caption, columns, variants.lines, lambda line: STYLE_CLASSES[line.standing])


def pareto_figure(rows: Sequence[BaselineRow | VariantRow], budget: BudgetLimits, winners: Sequence[str]) -> Figure:
    """Draw accuracy against measured p50 of every variant, with the budget; winners are marked and named.

    A whisker reaches down to the lowest accuracy that the samples do not rule out. A variant meets the accuracy budget
    only if its whisker does not cross the budget's line. The latency limit is not drawn if devices decided, if it
    differs between targets, or if it is relative, because a relative limit changes with every round.
    """
    elsewhere = any("device" in row for row in rows)
    limit_ms = None if elsewhere or "targets" in budget else budget["latency_p50_ms"]
    baseline = rows[0]
    floor = baseline["accuracy_validation"] - budget["accuracy_drop_pp"] / 100
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(7.6, 4.2), layout="constrained")
        for row in rows:
            look: PlotStyle = {
                "marker": "X" if row is baseline else PRECISION_MARKERS[row["precision"]],
                "color": TARGET_COLOURS[row["target"]],
            }
            place = ([row["p50_ms"]], [row["accuracy_validation"]])
            if row is not baseline:
                axes.vlines(place[0], lowest_accuracy(row), place[1], color=look["color"], linewidth=1, alpha=0.5)
            axes.plot(*place, linestyle="", markersize=7, fillstyle=TARGET_FILLS[row["target"]], alpha=0.9, **look)
        axes.set_xscale("log")
        accuracies = [row["accuracy_validation"] for row in rows]
        low = min(*accuracies, *(lowest_accuracy(row) for row in rows[1:]), floor)
        span = max(accuracies) - low or 0.01
        axes.set_ylim(low - 0.12 * span, max(accuracies) + 0.30 * span)
        axes.set_xlim(min(row["p50_ms"] for row in rows) / 1.8, max(row["p50_ms"] for row in rows) * 2.2)
        axes.axhspan(axes.get_ylim()[0], floor, color="#eeeeee", zorder=0)
        axes.axhline(floor, color="#333333", linewidth=1, linestyle="--")
        if limit_ms:
            axes.axvline(limit_ms, color="#333333", linewidth=1, linestyle=":")
        _name_points(axes, rows, winners)
        where = " on this machine" if elsewhere else ""
        axes.set(xlabel=f"p50 of one call{where}, ms (log scale)", ylabel="validation accuracy")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=1))
        axes.set_yticks([tick for tick in axes.get_yticks() if axes.get_ylim()[0] <= tick <= 1.0])
        axes.set_title("Every variant: accuracy against measured latency")
        shown = {row["precision"] for row in rows}
        _pareto_legend(
            axes, budget, limit_ms, [one for one in PRECISION_MARKERS if one in shown or one not in LOW_BIT_PRECISIONS]
        )
    return close_figure(figure)


def _name_points(axes: Axes, rows: Sequence[BaselineRow | VariantRow], winners: Sequence[str]) -> None:
    """Mark and number the winners and list them in the corner, where the names cannot overlap."""
    named = sorted((row for row in rows if row["name"] in winners), key=lambda row: row["p50_ms"])
    for number, row in enumerate(named, 1):
        place = (row["p50_ms"], row["accuracy_validation"])
        axes.plot(*[[value] for value in place], "o", markersize=15, markerfacecolor="none", color="#333333")
        axes.annotate(
            str(number), place, xytext=(0, 10), textcoords="offset points", ha="center", fontsize=9, weight="bold"
        )
    text = "\n".join(f"{number}  {row['name']}, {row['p50_ms']:.3g} ms" for number, row in enumerate(named, 1))
    axes.text(0.015, 0.975, text, transform=axes.transAxes, va="top", fontsize=8.5, linespacing=1.4)
    baseline = rows[0]
    axes.annotate(
        f"{baseline_runtime(baseline['interpreter'])}, {baseline['p50_ms']:.3g} ms",
        (baseline["p50_ms"], baseline["accuracy_validation"]),
        xytext=(0, 9),
        textcoords="offset points",
        fontsize=8,
        ha="center",
    )


def _pareto_legend(axes: Axes, budget: BudgetLimits, limit_ms: float | None, precisions: Sequence[str]) -> None:
    for target in ("tflite", "openvino", "onnx"):
        axes.plot([], [], "D", color=TARGET_COLOURS[target], fillstyle=TARGET_FILLS[target], label=target)
    for precision in precisions:
        axes.plot([], [], PRECISION_MARKERS[precision], color="#777777", label=precision)
    axes.plot([], [], "o", markersize=10, markerfacecolor="none", color="#333333", label="wins its target")
    sure = f"{100 * budget['accuracy_confidence']:g} %"
    axes.plot([], [], "--", color="#333333", linewidth=1, label=f"{budget['accuracy_drop_pp']:g} pp under the baseline")
    axes.plot([], [], "|", color="#777777", markersize=10, label=f"not ruled out at {sure} confidence")
    if limit_ms:
        axes.plot([], [], ":", color="#333333", linewidth=1, label=f"{limit_ms:g} ms, the limit")
    axes.legend(
        loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=6, fontsize=8, handletextpad=0.4, columnspacing=1.0
    )


def pictures(result: Result) -> dict[str, Picture]:
    """Return the figure of the page."""
    winners = list(result["winners"].values())
    alt = f"Accuracy against latency of {len(result['variants'])} variants; " + (
        f"winners: {', '.join(winners)}" if winners else "none is inside the budget"
    )
    caption = (
        "Up and left is better. Variants whose whisker reaches into the grey band do not meet the accuracy budget with "
        "the required confidence. The table of all variants has the same figures."
    )
    return {"pareto": picture(pareto_figure(result["variants"], result["budget"], winners), alt, caption)}


def reference_sentence(row: ReferenceModelRow) -> str:
    """Return one line about a reference model for the terminal. The result is empty if no variant won."""
    speed = ratio_with_bounds(row, "winner_speedup")
    if speed is None:
        return ""
    return (
        f"Against {row['name']} ({percent(row['accuracy_test'])} on test, {count(row['bytes'])} bytes, "
        f"p50 {milliseconds(row['p50_ms'])} ms): {row['winner']} is {faster(*speed)}, "
        f"{percentage_points(row['winner_gain_pp'])} pp on test, {times(row['winner_bytes_share'])} its bytes."
    )


def rivals_table(artifact: Artifact) -> Table:
    """Show each reference model of a benchmark, compared with the winner."""
    rows = artifact.metrics["rivals"]
    return build_table(
        REFERENCE_COLUMNS, rows, "" if rows else "the config names no reference model (benchmark.rivals)"
    )


def references_grid(result: Result) -> Grid | None:
    """Show the reference models compared with the winner. Returns None if there are none."""
    caption = "Reference models: files made by others, measured in the same rounds"
    return grid_from_columns(caption, REFERENCE_COLUMNS, result["rivals"]) if result["rivals"] else None
