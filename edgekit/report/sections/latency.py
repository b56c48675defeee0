"""Show the latency of calls: their distribution, and the speed-up of each step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter, PercentFormatter

from edgekit.core.artifacts import EVIDENCE, Artifact
from edgekit.core.schema.result import Result
from edgekit.core.schema.variants import WaterfallStep
from edgekit.report.figures import ACCENT, DARK, MID, STYLE, Picture, PlotStyle, close_figure, picture
from edgekit.report.formatting import bounds_text, count, faster, faster_with_bounds, milliseconds, times
from edgekit.report.tables import Grid, grid

SAMPLES = f"{EVIDENCE}/samples_ms.npz"
MAX_CURVES = 7
RANKS = {50: "o", 95: "s", 99: "^"}
CURVE_STYLES = (
    ("#333333", "-"), (DARK, "--"), (ACCENT, "-"), (MID, "-."), ("#777777", ":"), (DARK, ":"), (ACCENT, "-."),
)  # fmt: skip
CURVE_POINTS = 400
"""Number of points in a curve: more than a screen can show, but few enough for a small file."""


def shown_in_ecdf(benchmark: Artifact) -> list[str]:
    """Return the names of the baseline, the winners, the best post-training int8 variant, and the reference models.

    More curves would hide each other.
    """
    metrics = benchmark.metrics
    nearest = [row["name"] for row in metrics["unmet"].values() if row]
    shown = [metrics["rows"][0]["name"], *metrics["winners"].values(), metrics["post_training_baseline"], *nearest]
    names = dict.fromkeys(name for name in [*shown, *(row["name"] for row in metrics["rivals"])] if name)
    return list(names)[:MAX_CURVES]


def ecdf_figure(samples_ms: Mapping[str, np.ndarray]) -> Figure:
    """Draw, for each latency, the share of calls that took at most as long, with percentiles marked.

    `samples_ms` has an array (calls,) by name.
    """
    shares = np.linspace(0.0, 1.0, CURVE_POINTS + 1)
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(7.6, 4.4), layout="constrained")
        for number, (name, values) in enumerate(samples_ms.items()):
            colour, line = CURVE_STYLES[number % len(CURVE_STYLES)]
            curve_ms = np.quantile(values, shares, method="inverted_cdf")
            axes.plot(curve_ms, shares, line, color=colour, linewidth=1.4, drawstyle="steps-post", label=name)
            for rank, marker in RANKS.items():
                axes.plot(np.percentile(values, rank), rank / 100, marker, color=colour, markersize=6, fillstyle="none")
        for rank in RANKS:
            axes.axhline(rank / 100, color="#777777", linewidth=0.7, linestyle=":", zorder=1)
            axes.annotate(
                f"p{rank}",
                (1.0, rank / 100),
                xycoords=("axes fraction", "data"),
                xytext=(4, 0 if rank == 50 else 3 if rank == 99 else -3),
                textcoords="offset points",
                va="center",
                fontsize=8,
                annotation_clip=False,
            )
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        axes.set(ylim=(0, 1.02), xlabel="one call, ms (log scale)", ylabel="share of calls at most this long")
        axes.set_title("Latency of all calls (ECDF; ○ p50, □ p95, △ p99)")
        figure.legend(loc="outside lower center", ncols=2, fontsize=8, handlelength=3.2)
    return close_figure(figure)


def percentiles_grid(result: Result, names: Sequence[str]) -> Grid:
    """Show the percentiles of the calls whose distribution `ecdf_figure` draws."""
    rows = {row["name"]: row for row in [*result["variants"], *result["rivals"]]}
    columns = ("variant", "p50, ms", "p90, ms", "p95, ms", "p99, ms", "mean, ms", "p99 over p50", "calls")
    lines = [
        (
            name,
            *(milliseconds(rows[name][key]) for key in ("p50_ms", "p90_ms", "p95_ms", "p99_ms", "mean_ms")),
            times(rows[name]["p99_ms"] / rows[name]["p50_ms"]),
            count(rows[name]["calls"]),
        )
        for name in names
    ]
    return grid("Percentiles of the same calls", columns, lines, "|".join(columns[1:]))


def waterfall_figure(steps: Sequence[WaterfallStep]) -> Figure:
    """Draw p50 after each step of the pipeline, with the speed-up of the step. Rejected steps are hatched.

    The interval of each speed-up stands below it. If the interval contains 1, there is no measurable gain.
    """
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(7.6, 3.4), layout="constrained")
        for position, step in enumerate(steps):
            look: PlotStyle = (
                {"color": DARK} if step["kept"] else {"color": "white", "edgecolor": DARK, "hatch": "////"}
            )
            axes.bar(position, step["p50_ms"], width=0.62, **look)
            note = f"{step['p50_ms']:.3g} ms" + (f"\n{_gain(step)}" if "gain" in step else "")
            note += "" if step["kept"] else "\nrejected"
            axes.annotate(
                note, (position, step["p50_ms"]), xytext=(0, 3), textcoords="offset points", ha="center", fontsize=8
            )
        axes.set_yscale("log")
        shortest = min(step["p50_ms"] for step in steps)
        axes.set_ylim(shortest / 2.5, max(step["p50_ms"] for step in steps) * 6)
        axes.set_xticks(range(len(steps)), [f"{step['step']}\n{_short(step)}" for step in steps], fontsize=8)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.set(ylabel="p50 of one call, ms (log scale)")
        axes.set_title("Speed-up of each step")
        axes.grid(axis="x", visible=False)
    return close_figure(figure)


def _gain(step: WaterfallStep) -> str:
    low, high = step["gain_low"], step["gain_high"]
    return f"{faster(step['gain'], low, high)}\n({bounds_text(low, high)})"


def _short(step: WaterfallStep) -> str:
    return str(step["variant"]) if "gain" in step else ""


def waterfall_grid(result: Result) -> Grid | None:
    """Show the steps from the baseline to the winner."""
    rows = [
        (
            step["step"],
            step["variant"],
            milliseconds(step["p50_ms"]),
            faster_with_bounds(step, "gain"),
            "yes" if step["kept"] else "no",
        )
        for step in result["waterfall"]
    ]
    columns = ("step", "variant", "p50, ms", "against the step before", "kept")
    where = " on this machine" if "devices" in result else ""
    return grid(f"Step by step, all measured in the same rounds{where}", columns, rows, "p50, ms") if rows else None


def pictures(result: Result, benchmark: Artifact) -> dict[str, Picture]:
    """Return the figures of the page. Without a winner there is no waterfall."""
    with np.load(benchmark.file(SAMPLES), allow_pickle=False) as samples_ms:
        chosen = {name: samples_ms[name] for name in shown_in_ecdf(benchmark)}
    medians = ", ".join(f"{name} {milliseconds(float(np.median(values)))}" for name, values in chosen.items())
    caption = (
        "All timed calls. A curve further left is faster, and a steeper one is steadier. A curve that bends to "
        "the right at the top has slow calls that the median does not show."
    )
    drawn = {"ecdf": picture(ecdf_figure(chosen), f"Distribution of call latencies; medians in ms: {medians}", caption)}
    if result["waterfall"]:
        steps = "; ".join(f"{step['step']} {faster_with_bounds(step, 'gain')}" for step in result["waterfall"][1:])
        alt = f"p50 after each step of the pipeline: {steps}"
        caption = "Hatched steps were measured and rejected. The interval of each ratio is in brackets."
        drawn["waterfall"] = picture(waterfall_figure(result["waterfall"]), alt, caption)
    return drawn
