"""The figures of the page with their words: SVG in a data URI, its letters as outlines."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from edgekit.core.artifacts import EVIDENCE, Artifact
from edgekit.core.schema.cost import Cost
from edgekit.core.schema.loads import Loads
from edgekit.core.schema.profile import PredictedSpeedup
from edgekit.core.schema.result import Result
from edgekit.report import plots, tables
from edgekit.report.formatting import count, faster_with_ends, milliseconds, times

SAMPLES = f"{EVIDENCE}/samples_ms.npz"
MOST_CURVES = 7
CSS_PIXELS_PER_INCH = 96


@dataclass(frozen=True)
class Picture:
    """One figure; `alt` says in words what it shows, `caption` how to read it."""

    source: str
    width: int
    height: int
    alt: str
    caption: str


def picture(figure: Figure, alt: str, caption: str) -> Picture:
    """The same bytes for the same figure: no date, and names that do not depend on chance."""
    written = io.BytesIO()
    with mpl.rc_context({"svg.fonttype": "path", "svg.hashsalt": "edgekit"}):
        figure.savefig(written, format="svg", metadata={"Date": None, "Creator": None})
    width, height = (math.ceil(side * CSS_PIXELS_PER_INCH) for side in figure.get_size_inches())
    source = "data:image/svg+xml;base64," + base64.b64encode(written.getvalue()).decode()
    return Picture(source, width, height, alt, caption)


def build_pictures(
    result: Result, profile: Artifact, benchmark: Artifact, predicted: Sequence[PredictedSpeedup]
) -> dict[str, Picture]:
    """The figures by name; one whose figures the run does not have is left out."""
    found = {"pareto": _pareto(result), "ecdf": _ecdf(benchmark)}
    if result["waterfall"]:
        found["waterfall"] = _waterfall(result)
    metrics = profile.metrics
    found |= {"parts": _parts(metrics), "operators": _operators(metrics), "roofline": _roofline(metrics)}
    if metrics["ways"]:
        found["ways"] = _ways(metrics)
    if predicted:
        found["predicted"] = _predicted(predicted)
    found |= _by_class(benchmark)
    if result["loads"]["runs"]:
        found["loads"] = _loads(result["loads"])
    if "cost" in result:
        found |= _break_even(result["cost"])
    return found


def shown_in_ecdf(benchmark: Artifact) -> list[str]:
    """The baseline, the winners, the best post-training int8, rivals: a curve for each variant would hide them all."""
    metrics = benchmark.metrics
    nearest = [row["name"] for row in metrics["unmet"].values() if row]
    wanted = [metrics["rows"][0]["name"], *metrics["winners"].values(), metrics["post_training_baseline"], *nearest]
    names = dict.fromkeys(name for name in [*wanted, *(row["name"] for row in metrics["rivals"])] if name)
    return list(names)[:MOST_CURVES]


def _ecdf(benchmark: Artifact) -> Picture:
    with np.load(benchmark.file(SAMPLES), allow_pickle=False) as samples_ms:
        chosen = {name: samples_ms[name] for name in shown_in_ecdf(benchmark)}
    medians = ", ".join(f"{name} {milliseconds(float(np.median(values)))}" for name, values in chosen.items())
    caption = (
        "Every timed call, none left out: the further left, the faster; the steeper, the steadier. "
        "A curve that bends to the right at the top has slow calls that a median does not show."
    )
    return picture(plots.ecdf(chosen), f"Distribution of call latencies; medians in ms: {medians}", caption)


def _pareto(result: Result) -> Picture:
    winners = list(result["winners"].values())
    alt = f"Accuracy against latency of {len(result['variants'])} variants; " + (
        f"winners: {', '.join(winners)}" if winners else "none is inside the budget"
    )
    caption = (
        "Up and left is better; variants whose whisker reaches into the grey band are not surely within the budget. "
        "The table of all variants has the same figures."
    )
    return picture(plots.pareto(result["variants"], result["budget"], winners), alt, caption)


def _waterfall(result: Result) -> Picture:
    steps = "; ".join(f"{step['step']} {faster_with_ends(step, 'gain')}" for step in result["waterfall"][1:])
    caption = "Hatched steps were measured and not kept. In brackets the interval of each ratio."
    return picture(plots.waterfall(result["waterfall"]), f"p50 after each step of the pipeline: {steps}", caption)


def _parts(profile: Mapping[str, Any]) -> Picture:
    latency, shares = profile["latency"], profile["diagnosis"]["shares"]
    alt = ", ".join(f"{name} {latency[name]['share']:.0%}" for name in latency if name != "total")
    return picture(
        plots.latency_parts(latency, shares), f"One call of the baseline: {alt}", "Before anything was done."
    )


def _operators(profile: Mapping[str, Any]) -> Picture:
    slowest = ", ".join(f"{row['operator']} {row['share']:.0%}" for row in profile["operators"][:3]) or "by runtime"
    caption = "Before, by each runtime’s own profiler, which slows each call a little."
    figure = plots.operators(profile["operators"], profile["inside"])
    return picture(figure, f"Time by operator of the baseline: {slowest}", caption)


def _ways(profile: Mapping[str, Any]) -> Picture:
    caption = "The unmodified float network on each runtime."
    return picture(plots.ways(profile["ways"]), f"One call by each of {len(profile['ways'])} runtimes", caption)


def _predicted(rows: Sequence[PredictedSpeedup]) -> Picture:
    shares = sorted(row["share"] for row in rows)
    alt = f"Of {len(rows)} variants, achieved over predicted speed-up from {times(shares[0])} to {times(shares[-1])}"
    caption = (
        "On the line the prediction held; below it, something that is neither arithmetic nor bytes took the time; "
        "above it, what a call costs besides shrank too."
    )
    return picture(plots.predicted(rows), alt, caption)


def _loads(found: Loads) -> Picture:
    held = ", ".join(f"{row['name']} {count(row['rate_per_s'])}" for row in found["rates"]) or "not searched"
    caption = (
        "Left, every trial in the search for the highest rate; right, what a query waits and takes. p99 rises long "
        "before the worker is busy all the time, since arrivals bunch."
    )
    return picture(
        plots.loads(found), f"p99 against the rate of arrivals; highest rates held a second: {held}", caption
    )


def _break_even(found: Cost) -> dict[str, Picture]:
    figure = plots.break_even(found)
    if figure is None:
        return {}
    row = found["break_even"][0]
    caption = (
        "The processor’s time of so many calls, with what the run has cost in front; where the lines cross, the run is "
        "paid for. Bands are the intervals of a call."
    )
    return {"break_even": picture(figure, f"CPU-seconds by number of calls; {row['name']}: {row['text']}", caption)}


def _by_class(benchmark: Artifact) -> dict[str, Picture]:
    """Which class is taken for which, and samples that were lost, as far as there are any."""
    metrics = benchmark.metrics
    confusion, lost, names = metrics["confusion"], metrics["lost"], metrics["by_class"]["variants"][:2]
    found = {}
    if confusion:
        caption = (
            "Validation samples. Grey: answered rightly. The darker another cell, the larger the share of its class "
            "that is taken for the other one."
        )
        alt = f"Confusion matrix of {' and '.join(names)}, {len(confusion['classes'])} classes"
        found["confusion"] = picture(plots.confusion(confusion, names), alt, caption)
    figure = plots.lost(lost, tables.lost_samples(benchmark))
    if figure is not None:
        answers = "; ".join(f"{row['label']} answered as {row['variant']}" for row in lost["samples"])
        caption = f"Right by the baseline, wrong by {lost['variant']}: {len(lost['samples'])} of {lost['in_all']:,}."
        found["lost"] = picture(figure, f"Lost validation samples: {answers}", caption)
    examples = tables.examples(benchmark)
    if examples is not None:
        caption = "Validation pictures, those answered best first, then those answered worst."
        found["examples"] = picture(plots.examples(examples), "Labels and answers, drawn into pictures", caption)
    return found


def _roofline(profile: Mapping[str, Any]) -> Picture:
    caption = "Each layer of the network under the ceilings that this machine showed in the same run."
    return picture(plots.roofline(profile["layers"], profile["machine"]), "Roofline of the layers", caption)
