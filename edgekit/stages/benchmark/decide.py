"""Decide: which variants meet the budget, and which of them wins its target.

What rests on a measurement must not turn with its noise: a difference that the intervals do not establish is a tie,
and a tie goes to the fewest bytes, then to the first name. What was decided can be replayed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, cast

from edgekit.core.config import Budget
from edgekit.core.rows.decisions import AgainstDense, AgainstLimit, Candidate, is_choice
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

FASTEST = "fastest"
FEWEST_BYTES = "tie: fewest bytes"
FIRST_NAME = "tie: same bytes, first name"
ABOVE_LIMIT = "whole interval above the limit"
NOT_FASTER = "not faster than without them"
RECORDED = "recorded"
NO_WINNER = "none inside the budget"


@dataclass(frozen=True)
class Decision:
    """`content`: what stands in decision.json, where all that a latency shaped is below `measured`.

    `decisions`: one for each target, one over all of them, one for the latency limit where there is one, and one for
    sparse variants where there are any, each with its evidence. `metrics`: all that is shown, latencies included.
    """

    content: dict[str, Any]
    decisions: list[DecisionRow]
    metrics: dict[str, Any]


@dataclass(frozen=True)
class Choice:
    """Who won, by which rule, and how near the others came."""

    chosen: str | None
    rule: str
    candidates: Sequence[Candidate | AgainstLimit | AgainstDense]


def decide(
    rows: Sequence[Facts],
    timings: Timings,
    budget: Budget,
    targets: Sequence[str],
    recorded: dict[str, Any] | None = None,
) -> Decision:
    """The first row is the unmodified baseline; the others have their drop on validation (`accuracy_drop.Drop`), or
    for a classification what it is computed from, `lost` and `gained` of `samples`.

    `recorded` decisions are followed, and today's are reported beside them; StageError if they cannot be.
    """
    first, *variants = rows
    baseline = cast("BaselineFacts", first)
    checked = [check_limits(row, budget) for row in variants]
    today_slow = too_slow(checked, timings, budget)
    compared = sparsity.against_dense(checked, today_slow, timings)
    today_nothing = sparsity.without_speedup(compared)
    choices = {target: choose(_inside(checked, {*today_slow, *today_nothing}, target), timings) for target in targets}
    today = {target: choice.chosen for target, choice in choices.items() if choice.chosen}
    if recorded is not None:
        check(recorded, checked, budget, targets)
    measured = recorded or {"winners": today, "too_slow": today_slow, "buys_nothing": today_nothing}
    winners, slow, nothing = measured["winners"], measured["too_slow"], measured["buys_nothing"]

    reasons = {name: sparsity.reason(name, compared, recorded is not None) for name in nothing}
    shown = [_with_measured(row, slow, reasons, budget, recorded is not None) for row in checked]
    by_name = {row["name"]: row for row in shown}
    over_all = choose([by_name[name] for name in winners.values()], timings)
    overall = by_name[over_all.chosen] if over_all.chosen else None
    today_overall = choose([by_name[name] for name in today.values()], timings).chosen
    replaying = recorded is not None
    decisions = [
        _decision_row(f"winner of {target}", choice, winners.get(target), choice.chosen, replaying)
        for target, choice in choices.items()
    ]
    decisions.append(_decision_row("winner over all targets", over_all, over_all.chosen, today_overall))
    if budget.latency_p50_ms is not None:
        limited = Choice(None, ABOVE_LIMIT, [_against_limit(row, timings, today_slow) for row in checked])
        decisions.append(
            _decision_row(f"too slow for {budget.latency_p50_ms:g} ms", limited, slow, today_slow, replaying)
        )
    if compared or nothing:
        beside = Choice(None, NOT_FASTER, compared)
        decisions.append(_decision_row(sparsity.DECISION, beside, nothing, today_nothing, replaying))

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
        "nearest_miss": None if overall else nearest_miss(shown, slow, timings, budget),
        "unmet": {
            target: nearest_miss([row for row in shown if row["target"] == target], slow, timings, budget)
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


def too_slow(rows: Iterable[CheckedVariant], timings: Timings, budget: Budget) -> list[str]:
    """Names of the variants whose p50 is over the limit for sure, sorted."""
    limit_ms = budget.latency_p50_ms
    if limit_ms is None:
        return []
    return sorted(row["name"] for row in rows if timings.median(row["name"]).low_ms > limit_ms)


def too_close_to_call(decisions: Iterable[DecisionRow], tie_margin: float) -> list[str]:
    """A line for each of today's winners of a target that stands in the tie only because its interval is wide.

    With more rounds it either leaves the tie, or its whole interval comes below the margin.
    """
    return [
        f"{decision['decision']}: {row['name']} takes {_with_ends(row, 'ratio')} times as long as the fastest, and a "
        f"tie ends at {1 + tie_margin:g}"
        for decision in decisions
        if is_choice(decision) and decision["decision"].startswith("winner of ")
        for row in decision["candidates"]
        if row["name"] == decision["today"] and row["ratio_low"] <= 1 + tie_margin < row["ratio_high"]
    ]


def unresolved_steps(waterfall: Iterable[WaterfallStep], tie_margin: float) -> list[str]:
    """A line for each step whose gain has an interval too wide to tell a few percent from nothing."""
    return [
        f"gain of {step['step']}: {_with_ends(step, 'gain')} times as fast, which is not known to ±1 %"
        for step in waterfall
        if "gain" in step and too_wide(step["gain_low"], step["gain_high"], tie_margin)
    ]


def _with_ends(row: Mapping[str, Any], name: str) -> str:
    return f"{row[name]:.3g} ({row[f'{name}_low']:.3g} to {row[f'{name}_high']:.3g})"


def choose(rows: Sequence[CheckedVariant], timings: Timings) -> Choice:
    """The fastest; of all that it does not beat for sure, the one with the fewest bytes, then the first by name."""
    if not rows:
        return Choice(None, NO_WINNER, [])
    fastest = timings.fastest(row["name"] for row in rows)
    candidates = sorted(
        (_candidate(row, fastest, timings) for row in rows), key=lambda row: (row["ratio"], row["name"])
    )
    first, *others = sorted((row["bytes"], row["name"]) for row in candidates if row["in_the_tie"])
    if not others:
        return Choice(first[1], FASTEST, candidates)
    return Choice(first[1], FEWEST_BYTES if first[0] < others[0][0] else FIRST_NAME, candidates)


def _candidate(row: CheckedVariant, fastest: str, timings: Timings) -> Candidate:
    name = row["name"]
    ratio = timings.ratio(name, fastest)
    return {
        "name": name,
        "bytes": row["bytes"],
        "p50_ms": timings.p50_ms(name),
        "ratio": ratio.ratio,
        "ratio_low": ratio.low,
        "ratio_high": ratio.high,
        "in_the_tie": not timings.is_slower(ratio),
    }


def _against_limit(row: CheckedVariant, timings: Timings, slow: Iterable[str]) -> AgainstLimit:
    median = timings.median(row["name"])
    return {
        "name": row["name"],
        "p50_ms": median.p50_ms,
        "low_ms": median.low_ms,
        "high_ms": median.high_ms,
        "too_slow": row["name"] in slow,
    }


def _inside(rows: Iterable[CheckedVariant], out: Iterable[str], target: str) -> list[CheckedVariant]:
    return [row for row in rows if row["target"] == target and row["inside_budget"] and row["name"] not in out]


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


def _decision_row(decision: str, choice: Choice, chosen: Any, today: Any, replayed: bool = False) -> DecisionRow:
    """One decision with its evidence, which is always today's; `today` is what it would decide by itself."""
    row = {
        "decision": decision,
        "chosen": chosen,
        "rule": RECORDED if replayed else choice.rule,
        "candidates": choice.candidates,
        "replayed": replayed,
        "today": today,
    }
    return cast("DecisionRow", row)
