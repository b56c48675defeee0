"""Decide: which variants meet the budget, and which of them wins its target. What was decided can be replayed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, cast

from edgekit.core.config import Budget
from edgekit.core.rows.decisions import Decision as DecisionRow
from edgekit.core.rows.variants import BaselineFacts, CheckedVariant, Facts, VariantRow, WaterfallStep
from edgekit.core.tasks.accuracy_drop import Drop, bounded, refusal
from edgekit.runner.measure.intervals import too_wide
from edgekit.stages.benchmark import sparsity
from edgekit.stages.benchmark.account import (
    nearest_miss,
    post_training_baseline,
    verdict,
    waterfall,
    with_interval,
)
from edgekit.stages.benchmark.replayed import check
from edgekit.stages.benchmark.timings import Timings
from edgekit.stages.benchmark.winners import (
    Choice,
    ClassTimings,
    against_limit,
    choose,
    decision_row,
    outcome_of,
    with_ends,
)
from edgekit.stages.benchmark.winners import winners as winner_rows

ABOVE_LIMIT = "whole interval above the limit"
NOT_FASTER = "not faster than without them"


@dataclass(frozen=True)
class Decision:
    """`content`: what stands in decision.json, where all that a latency shaped is below `measured`.

    `decisions`: one for each target, one over all of them, one for the latency limit where there is one, and one for
    sparse variants where there are any, each with its evidence. `metrics`: all that is shown, latencies included.
    """

    content: dict[str, Any]
    decisions: list[DecisionRow]
    metrics: dict[str, Any]


def decide(
    rows: Sequence[Facts],
    timings: Timings,
    budget: Budget,
    targets: Sequence[str],
    recorded: dict[str, Any] | None = None,
    deciding: ClassTimings | None = None,
) -> Decision:
    """The first row is the unmodified baseline; the others have their drop on validation (`accuracy_drop.Drop`), or
    for a classification what it is computed from, `lost` and `gained` of `samples`.

    `timings` are of this machine. They decide, unless those of a class of devices are given (`deciding`).
    `recorded` decisions are followed, and today's are reported beside them; StageError if they cannot be.
    """
    deciding = deciding or ClassTimings(timings)
    first, *variants = rows
    baseline = cast("BaselineFacts", first)
    checked = [check_limits(row, budget) for row in variants]
    found = outcome_of(checked, deciding, budget, targets)
    compared, choices = found.compared, found.choices
    today = {target: choice.chosen for target, choice in choices.items() if choice.chosen}
    if recorded is not None:
        check(recorded, checked, budget, targets)
    measured = recorded or {"winners": today, "too_slow": found.too_slow, "buys_nothing": found.buys_nothing}
    winners, slow, nothing = measured["winners"], measured["too_slow"], measured["buys_nothing"]

    replaying = recorded is not None
    reasons = {name: sparsity.reason(name, compared, replaying) for name in nothing}
    shown = [_with_measured(row, slow, reasons, budget, replaying) for row in checked]
    by_name = {row["name"]: row for row in shown}
    over_all = choose([by_name[name] for name in winners.values()], deciding.timings)
    overall = by_name[over_all.chosen] if over_all.chosen else None
    today_overall = choose([by_name[name] for name in today.values()], deciding.timings).chosen
    decisions = winner_rows(choices, winners, replaying)
    decisions.append(decision_row("winner over all targets", over_all, over_all.chosen, today_overall))
    if budget.latency_p50_ms is not None:
        against = [against_limit(row, deciding.timings, found.too_slow) for row in deciding.timed(checked)]
        limited = Choice(None, ABOVE_LIMIT, against)
        limit = f"too slow for {budget.latency_p50_ms:g} ms"
        decisions.append(decision_row(limit, limited, slow, found.too_slow, replaying))
    if compared or nothing:
        beside = Choice(None, NOT_FASTER, compared)
        decisions.append(decision_row(sparsity.DECISION, beside, nothing, found.buys_nothing, replaying))

    post_training = post_training_baseline(shown, timings)
    facts = [{name: value for name, value in row.items() if name != "zipped_bytes"} for row in checked]  # zlibs differ
    content = {"variants": [baseline, *facts], "measured": measured, "budget": budget.model_dump()}
    metrics = {
        "variants": content["variants"],
        "budget": content["budget"],
        "winners": winners,
        "winner": over_all.chosen,
        "post_training_baseline": post_training,
        "rows": [
            {**baseline, **timings.latencies[baseline["name"]]},
            *(_timed(row, baseline["name"], timings) for row in shown),
        ],
        "waterfall": waterfall(overall, shown, timings, baseline) if overall else [],
        "verdict": verdict(overall, post_training, baseline, timings),
        "nearest_miss": None if overall else nearest_miss(shown, slow, timings, deciding.timings, budget),
        "unmet": {
            target: nearest_miss(
                [row for row in shown if row["target"] == target], slow, timings, deciding.timings, budget
            )
            for target in targets
            if target not in winners
        },
        "decisions": decisions,
    }
    return Decision(content, decisions, metrics)


def check_limits(row: Mapping[str, Any], budget: Budget) -> CheckedVariant:
    """The row with its drop on validation, what bounds it, and the limits of accuracy and size that it breaks."""
    figures = {field.name: row[field.name] for field in fields(Drop) if field.name in row}
    drop = Drop(**figures) if "bound_pp" in figures else bounded(**figures, confidence=budget.accuracy_confidence)
    refused = refusal(drop, budget.accuracy_drop_pp)
    broken = [refused] if refused else []
    if budget.size_bytes is not None and row["bytes"] > budget.size_bytes:
        broken.append(f"{row['bytes']:,} bytes are over {budget.size_bytes:,}")
    return cast("CheckedVariant", {**row, **asdict(drop), "inside_budget": not broken, "reasons": broken})


def unresolved_steps(waterfall: Iterable[WaterfallStep], tie_margin: float) -> list[str]:
    """A line for each step whose gain has an interval too wide to tell a few percent from nothing."""
    return [
        f"gain of {step['step']}: {with_ends(step, 'gain')} times as fast, which is not known to ±1 %"
        for step in waterfall
        if "gain" in step and too_wide(step["gain_low"], step["gain_high"], tie_margin)
    ]


def _with_measured(
    row: CheckedVariant, slow: Iterable[str], nothing: Mapping[str, str], budget: Budget, replaying: bool
) -> CheckedVariant:
    """The row with what rests on a clock as well: the limit of latency, and why a sparse one is rejected."""
    name = row["name"]
    reasons = []
    if name in slow:
        reasons.append(f"p50 is over {budget.latency_p50_ms:g} ms" + (", as recorded" if replaying else ""))
    if name in nothing:
        reasons.append(nothing[name])
    return {**row, "inside_budget": row["inside_budget"] and not reasons, "reasons": [*row["reasons"], *reasons]}


def _timed(row: CheckedVariant, baseline: str, timings: Timings) -> VariantRow:
    """The row with its latencies, and how many times the baseline's speed it has."""
    name = row["name"]
    gain = with_interval("speedup", timings.ratio(baseline, name))
    return cast("VariantRow", {**row, **timings.latencies[name], **gain})
