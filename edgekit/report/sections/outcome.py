"""Show the verdict on the page: headline, main figures, and the shipped variants compared with the budget's limits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from edgekit.core import tasks
from edgekit.core.budget import Budget, VariantLimits
from edgekit.core.config import TARGETS
from edgekit.core.schema.limits import BudgetLimits as Recorded
from edgekit.core.schema.result import Result
from edgekit.core.schema.variants import BaselineRow, BudgetMet, VariantRow
from edgekit.measure.forecast import baseline_runtime
from edgekit.report import checks
from edgekit.report.formatting import (
    bounds_text,
    capitalised,
    count,
    faster,
    faster_with_bounds,
    milliseconds,
    percent,
    percentage_points,
    ratio_text,
    ratio_with_bounds,
    times,
)
from edgekit.report.tables import Grid, Line


def headline(result: Result) -> tuple[str, str]:
    """Return two texts: the verdict in one line, and the reasons for it."""
    verdict, budget = result["verdict"], result["budget"]
    if not verdict["met"]:
        message = checks.missed_message(result["nearest_miss"], budget)
        return "Budget missed: nothing ships", f"{capitalised(message)}."
    ships, requested = len(result["winners"]), len(result["winners"]) + len(result["unmet"])
    details = (
        f"{verdict['winner']} is the fastest variant that ships. A call takes {_p50(verdict)} at p50; compared with "
        f"{baseline_runtime(result['variants'][0]['interpreter'])}: {faster_with_bounds(verdict, 'speedup_vs_eager')}, "
        f"and {_size(verdict['size_ratio'])}. "
        f"On validation it {_loss(verdict['drop_validation_pp'])}; with {100 * verdict['confidence']:g} % confidence "
        f"{_bound(verdict['bound_validation_pp'])}, and the budget allows a loss of "
        f"{budget['accuracy_drop_pp']:g} pp.{_accuracy_is(result)}"
    )
    return (
        f"Budget met: {ships} of {requested} target{'s' if requested > 1 else ''} ship{'s' if ships == 1 else ''}",
        details,
    )


def _p50(verdict: BudgetMet) -> str:
    here, there = f"{milliseconds(verdict['p50_ms'])} ms", verdict.get("device")
    return f"{milliseconds(there['p50_ms'])} ms on {there['host']} and {here} on this machine" if there else here


def _accuracy_is(result: Result) -> str:
    """Say what accuracy means for this task. The result is empty for a classification."""
    task = tasks.load_task(result["task"])
    if result["task"] == "classification":
        return ""
    second = getattr(task, "SECOND", None) if "second_accuracy" in result["variants"][0] else None
    return f" Here {task.METRIC_TEXT}{f'; {second.metric} {second.description}' if second else ''}."


def _size(ratio: float) -> str:
    """Compare the winner's size with the baseline's in words.

    `ratio` is the baseline's bytes divided by the winner's.
    """
    if times(ratio) == times(1.0):
        return "of the same size"
    return f"{times(ratio)} smaller" if ratio > 1 else f"{times(1 / ratio)} larger"


def _bound(pp: float) -> str:
    return f"the loss is at most {pp:.2f} pp" if pp >= 0 else f"the gain is at least {-pp:.2f} pp"


def _loss(drop_pp: float) -> str:
    if round(drop_pp, 2) == 0:
        return "keeps the baseline’s accuracy"
    return f"{'loses' if drop_pp > 0 else 'gains'} {abs(drop_pp):.2f} pp of accuracy"


def facts(result: Result) -> list[tuple[str, str, str]]:
    """Return the main figures, each as (figure, description, text); the text says what the figure is compared with."""
    verdict = result["verdict"]
    if not verdict["met"]:
        return []
    rows = {row["name"]: row for row in result["variants"]}
    baseline, winner = result["variants"][0], rows[verdict["winner"]]
    metric = tasks.load_task(result["task"]).METRIC
    before = f"{baseline_runtime(baseline['interpreter'])}: {milliseconds(baseline['p50_ms'])} ms"
    what = "latency, p50 of one call"
    p50_ms: float | None = verdict["p50_ms"]
    if there := verdict.get("device"):
        before = f"this machine: {milliseconds(p50_ms)} ms; {before}"
        p50_ms, what = there["p50_ms"], f"{what} on {there['host']} ({there['where']})"
    large = [
        (f"{milliseconds(p50_ms)} ms", what, before),
        (
            f"{count(winner['bytes'])} bytes",
            "size of the model",
            f"baseline: {count(baseline['bytes'])} bytes",
        ),
        (
            percent(winner["accuracy_test"]),
            f"{'accuracy' if result['task'] == 'classification' else metric} on test, read once{_interval(winner)}",
            f"baseline: {percent(baseline['accuracy_test'])}",
        ),
    ]
    if (plain := ratio_with_bounds(verdict, "speedup_vs_post_training_baseline")) is not None:
        itself = plain == (1.0, 1.0, 1.0)
        large.append(
            (
                faster(*plain),
                "against the best plain int8",
                "the winner is that file" if itself else f"interval {bounds_text(*plain[1:])}",
            )
        )
    return large


def _interval(row: BaselineRow | VariantRow) -> str:
    """Return the interval of the test accuracy as the end of a phrase; empty if there is none."""
    interval = row.get("accuracy_interval")
    if interval is None:
        return ""
    low, high = percent(interval["test_low"]), percent(interval["test_high"])
    return f"; {interval['confidence']:.0%} interval {low} to {high}"


def targets_grid(result: Result) -> Grid:
    """Show the variant that ships for each target, compared with each limit of the budget."""
    budget, baseline = result["budget"], result["variants"][0]
    rows = {row["name"]: row for row in result["variants"] if row["target"] != "pytorch"}
    there = result.get("devices")
    with_files = [target for target in TARGETS if any(row["target"] == target for row in rows.values())]
    held_to = limit_lines(budget, with_files, there is not None)
    before = [
        "before", baseline["name"], percent(baseline["accuracy_validation"]), "", *([] if there is None else [""]),
        milliseconds(baseline["p50_ms"]), count(baseline["bytes"]), "1×",
    ]  # fmt: skip
    lines = [*held_to, Line(before)]
    for target, name in result["winners"].items():
        lines.append(Line([target, *_met(rows[name])], "ships"))
    for target, nearest in _unmet(result).items():
        if nearest:
            lines.append(Line([f"{target}: no bundle", *_met(rows[nearest["name"]])], "out"))
    sure = f"{100 * budget['accuracy_confidence']:g} %"
    latency = ("p50, ms",) if there is None else (f"p50, ms on {there['slowest'] or there['where']}", "p50, ms here")
    columns = ("target", "variant", "accuracy", f"drop at most, pp ({sure})", *latency, "bytes", "speed-up")
    what = "What ships, and how it met the budget" if result["winners"] else "The nearest miss of each target"
    where = "" if there is None else " on this machine"
    caption = f"{what}; accuracy on validation, speed-up over the baseline{where} with its interval"
    return Grid(caption, columns, lines, frozenset(columns[2:]))


def _met(row: VariantRow) -> list[str]:
    return [
        row["name"],
        percent(row["accuracy_validation"]),
        percentage_points(row["bound_pp"]),
        *([milliseconds(row["device"]["p50_ms"])] if "device" in row else []),
        milliseconds(row["p50_ms"]),
        count(row["bytes"]),
        ratio_text(row, "speedup"),
    ]


def missed_lines(result: Result) -> list[str]:
    """Return a line for each target without a bundle."""
    lost = result.get("targets_left_out", {})
    return [
        f"{target}: {near['name']} comes nearest; {'; '.join(near['reasons'])}."
        if near
        else f"{target}: {lost.get(target, 'no variant')}."
        for target, near in _unmet(result).items()
    ]


def leakage_lines(result: Result) -> list[str]:
    """Return a line for each model trained elsewhere, which says whether it has seen validation samples in training."""
    return [f"{checks.leakage_message(row)}." for row in checks.leakage_rows(result)]


def _unmet(result: Result) -> dict[str, Any]:
    return result["unmet"]


def limit_lines(budget: Recorded, targets: Sequence[str], elsewhere: bool) -> list[Line]:
    """Return a line with the limits of all targets, or one for each target if they differ.

    `elsewhere` says that the latencies on devices decided. The table then has a further column for the latencies of
    this machine, to which no limit applies.
    """
    whole = Budget.model_validate(budget)
    limits_by_name = {f"limit for {target}": _limit(whole.limits(target)) for target in targets}
    if len(set(limits_by_name.values())) < 2:
        limits_by_name = {"limit of the budget": _limit(whole.limits(targets[0] if targets else ""))}
    drop = f"≤ {budget['accuracy_drop_pp']:g}"
    return [
        Line([name, "", "", drop, *([latency, ""] if elsewhere else [latency]), size, ""], "limit")
        for name, (latency, size) in limits_by_name.items()
    ]


def _limit(limits: VariantLimits) -> tuple[str, str]:
    latency = "no limit"
    if limits.latency_p50 is not None:
        latency = f"≤ {limits.latency_text()}"
    elif limits.latency_p50_ms is not None:
        latency = f"≤ {milliseconds(limits.latency_p50_ms)}"
    size = f"≤ {count(limits.size_bytes)}" if limits.size_bytes else "no limit"
    return latency, size if limits.size is None else f"≤ {limits.size_text(unit='')}"
