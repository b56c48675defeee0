"""Decide which variants meet the budget and which one wins on each target, or replay recorded decisions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, cast

from edgekit.core import replay
from edgekit.core.config import Budget
from edgekit.core.errors import StageError
from edgekit.core.schema.decisions import Decision as DecisionRow
from edgekit.core.schema.decisions import DenseComparison
from edgekit.core.schema.devices import DeviceClass
from edgekit.core.schema.variants import (
    BaselineFacts,
    CheckedVariant,
    ModelFacts,
    NearestMiss,
    VariantRow,
    WaterfallStep,
)
from edgekit.core.tasks.accuracy_drop import Drop, budget_violation, drop_of_counts
from edgekit.stages.benchmark.summary import (
    device_field,
    nearest_miss,
    post_training_baseline,
    ratio_fields,
    verdict,
    waterfall,
)
from edgekit.stages.benchmark.timings import Timings
from edgekit.stages.benchmark.winners import (
    OVERALL_WINNER,
    RECORDED,
    SPARSITY_DECISION,
    Choice,
    ClassTimings,
    OpenComparison,
    Outcome,
    baseline_bytes,
    choose_winner,
    compare_with_limit,
    decide_outcome,
    decision_row,
    limit_text,
    limits_field,
    no_speedup_reason,
    winner_rows,
    with_bounds,
)

ABOVE_LIMIT = "whole interval above the limit"
NO_GAIN_FROM_ZEROS = "neither faster nor smaller than without them"
RESOLUTION = 0.01
"""The bounds of an interval should differ from its ratio by no more than this share, so that a difference of 3 % is
detected reliably."""
GAIN_RESOLUTION = 0.15
"""A speed-up is settled if neither bound of its interval differs from it by more than this share of the speed-up."""


@dataclass(frozen=True)
class Decision:
    """The decisions of a benchmark.

    `content` is the content of decision.json, in which everything that depends on latencies is under `measured`.
    `decisions` has one decision per target, one over all targets, one on the latency limit if there is one, and one on
    sparse variants if there are any, each with its evidence. `metrics` has everything that is reported, including
    latencies.
    """

    content: dict[str, Any]
    decisions: list[DecisionRow]
    metrics: dict[str, Any]


def decide(
    rows: Sequence[ModelFacts],
    timings: Timings,
    budget: Budget,
    targets: Sequence[str],
    recorded: dict[str, Any] | None = None,
    deciding: ClassTimings | None = None,
) -> Decision:
    """Decide which variants meet the budget and win, or follow `recorded` decisions.

    The first row is the unmodified baseline. Each other row has the accuracy drop of its variant on validation, either
    as the fields of `accuracy_drop.Drop` or, for a classification, as the counts from which the drop is computed:
    `samples`, and how many of them were `lost` and `gained`.

    `timings` are those of this machine. They decide, unless `deciding` has those of a class of devices. Recorded
    decisions are reported together with the decisions that the timings of this run would give. Decisions that were
    recorded on devices keep their recorded evidence, because the timings of this machine say nothing about the devices.

    Raises StageError if recorded decisions cannot be followed.
    """
    deciding = deciding or ClassTimings(timings)
    baseline_row, *variants = rows
    baseline = cast("BaselineFacts", baseline_row)
    checked = check_all_limits(variants, budget)
    if recorded is not None:
        check_recorded(recorded, checked, budget, targets)
    outcome = decide_outcome(checked, deciding, budget, targets)
    recorded_devices = recorded.get(replay.DEVICE_DECISIONS) if recorded else None
    if recorded_devices:
        decisions = replayed_decisions(recorded_devices["decisions"])
    else:
        decisions = _decisions(checked, outcome, deciding, budget, recorded)
    devices = recorded_devices["devices"] if recorded_devices else deciding.record
    measured = recorded or _measured_record(outcome, devices, decisions)
    winners, slow_names, no_speedup_names = measured["winners"], measured["too_slow"], measured["buys_nothing"]

    is_replayed = recorded is not None
    sparse_comparisons = next((row["candidates"] for row in decisions if row["decision"] == SPARSITY_DECISION), [])
    reasons = {
        name: no_speedup_reason(name, cast("list[DenseComparison]", sparse_comparisons), is_replayed)
        for name in no_speedup_names
    }
    reason_suffix = f"{_on_devices_text(devices)}{', as recorded' if is_replayed else ''}"
    variant_rows = [
        _with_latency_reasons(
            row, _over_limit_text(row, budget) + reason_suffix if row["name"] in slow_names else "", reasons
        )
        for row in checked
    ]
    limit_timings = None if recorded_devices else deciding.timings  # a record does not have the devices' timings
    overall_name = next(row["chosen"] for row in decisions if row["decision"] == OVERALL_WINNER)
    overall = next((row for row in variant_rows if row["name"] == overall_name), None)

    post_training = post_training_baseline(variant_rows, timings)
    # The compressed size is left out, because it differs between versions of zlib.
    variant_facts = [{name: value for name, value in row.items() if name != "zipped_bytes"} for row in checked]
    content = {"variants": [baseline, *variant_facts], "measured": measured, "budget": budget.model_dump()}

    def nearest(rows: list[CheckedVariant]) -> NearestMiss | None:
        return nearest_miss(rows, slow_names, timings, budget, devices, limit_timings)

    metrics = {
        "variants": content["variants"],
        "budget": content["budget"],
        "winners": winners,
        "winner": overall_name,
        "post_training_baseline": post_training,
        "rows": [
            {**baseline, **timings.latencies[baseline["name"]]},
            *(
                _variant_row(row, baseline["name"], timings, devices, limits_field(row, checked, limit_timings, budget))
                for row in variant_rows
            ),
        ],
        "waterfall": waterfall(overall, variant_rows, timings, baseline) if overall else [],
        "verdict": verdict(overall, post_training, baseline, timings, devices),
        "nearest_miss": None if overall else nearest(variant_rows),
        "unmet": {
            target: nearest([row for row in variant_rows if row["target"] == target])
            for target in targets
            if target not in winners
        },
        "decisions": decisions,
        **({"devices": devices} if devices else {}),
    }
    return Decision(content, decisions, metrics)


def replayed_decisions(rows: Sequence[DecisionRow]) -> list[DecisionRow]:
    """Mark recorded decisions of devices as replayed. They keep the recorded evidence, because no device was timed."""
    return [cast("DecisionRow", {**row, "rule": RECORDED, "replayed": True}) for row in rows]


def _measured_record(outcome: Outcome, devices: DeviceClass | None, decisions: list[DecisionRow]) -> dict[str, Any]:
    winners = {target: choice.chosen for target, choice in outcome.choices.items() if choice.chosen}
    record = {"winners": winners, "too_slow": outcome.too_slow, "buys_nothing": outcome.without_speedup}
    return (
        record if devices is None else {**record, replay.DEVICE_DECISIONS: {"devices": devices, "decisions": decisions}}
    )


def _decisions(
    checked: Sequence[CheckedVariant],
    outcome: Outcome,
    deciding: ClassTimings,
    budget: Budget,
    recorded: dict[str, Any] | None,
) -> list[DecisionRow]:
    """Return the decisions on each target, on all targets, on the latency limit and on sparsity, with evidence."""
    own_winners = {target: choice.chosen for target, choice in outcome.choices.items() if choice.chosen}
    is_replayed = recorded is not None
    measured = recorded or _measured_record(outcome, None, [])
    by_name = {row["name"]: row for row in checked}
    decisions = winner_rows(outcome.choices, measured["winners"], is_replayed)
    overall = choose_winner([by_name[name] for name in measured["winners"].values()], deciding.timings)
    own_overall = choose_winner([by_name[name] for name in own_winners.values()], deciding.timings).chosen
    decisions.append(decision_row(OVERALL_WINNER, overall, overall.chosen, own_overall))
    if limit := limit_text(budget, list(outcome.choices)):
        timed_rows = deciding.timed_rows(checked)
        comparisons = [
            compare_with_limit(row, timed_rows, deciding.timings, budget, outcome.too_slow) for row in timed_rows
        ]
        limit_choice = Choice(None, ABOVE_LIMIT, comparisons)
        decisions.append(
            decision_row(f"too slow for {limit}", limit_choice, measured["too_slow"], outcome.too_slow, is_replayed)
        )
    if outcome.comparisons or measured["buys_nothing"]:
        sparsity_choice = Choice(None, NO_GAIN_FROM_ZEROS, outcome.comparisons)
        no_speedup_names = measured["buys_nothing"]
        decisions.append(
            decision_row(SPARSITY_DECISION, sparsity_choice, no_speedup_names, outcome.without_speedup, is_replayed)
        )
    if deciding.record is None:
        return decisions
    device_fields = {"where": deciding.record["where"], "host": deciding.record["slowest"]}
    return [cast("DecisionRow", {**row, **device_fields}) for row in decisions]


def _over_limit_text(row: CheckedVariant, budget: Budget) -> str:
    return f"p50 is over {budget.limits(row['target']).latency_text()}"


def _on_devices_text(devices: DeviceClass | None) -> str:
    return f" on {devices['where']}" if devices else ""


def check_all_limits(rows: Sequence[Mapping[str, Any]], budget: Budget) -> list[CheckedVariant]:
    """Call `check_limits` for every variant of a run."""
    return [check_limits(row, budget, rows) for row in rows]


def check_limits(row: Mapping[str, Any], budget: Budget, rows: Sequence[Mapping[str, Any]] = ()) -> CheckedVariant:
    """Return the row with its accuracy drop on validation, the upper bound of the drop, and the broken limits.

    Only the limits on accuracy and size are checked here. If the size limit is relative to the baseline, it refers to
    the baseline's float file for the same target, which is taken from `rows`.
    """
    figures = {field.name: row[field.name] for field in fields(Drop) if field.name in row}
    drop = (
        Drop(**figures) if "bound_pp" in figures else drop_of_counts(**figures, confidence=budget.accuracy_confidence)
    )
    drop_violation = budget_violation(drop, budget.accuracy_drop_pp)
    reasons = [drop_violation] if drop_violation else []
    limits = budget.limits(row["target"])
    reference_bytes = baseline_bytes(row["target"], rows, limits)
    max_bytes = limits.max_bytes(reference_bytes)
    if max_bytes is not None and row["bytes"] > max_bytes:
        reasons.append(f"{row['bytes']:,} bytes are over {limits.size_text(reference_bytes, unit='')}")
    return cast("CheckedVariant", {**row, **asdict(drop), "inside_budget": not reasons, "reasons": reasons})


def unresolved_steps(waterfall: Sequence[WaterfallStep], tie_margin: float) -> list[OpenComparison]:
    """Return the steps of the waterfall whose gain is not known precisely enough."""
    comparisons = []
    previous = ""
    for step in waterfall:
        if "gain" in step:
            comparisons += _if_unresolved(
                f"gain of {step['step']}", step, "gain", (previous, step["variant"]), tie_margin
            )
        previous = step["variant"] if step["kept"] else previous
    return comparisons


def unresolved_speedups(metrics: Mapping[str, Any], tie_margin: float) -> list[OpenComparison]:
    """Return the winners whose speed-up over the baseline or over quantization is not known precisely enough."""
    baseline, *variants = metrics["rows"]
    winners = [row for row in variants if row["name"] in metrics["winners"].values()]
    comparisons = []
    for row in winners:
        pair = (baseline["name"], row["name"])
        comparisons += _if_unresolved(f"speed-up of {row['name']}", row, "speedup", pair, tie_margin)
    verdict, quantized = metrics["verdict"], metrics["post_training_baseline"]
    if verdict["met"] and quantized and quantized != verdict["winner"]:
        field, pair = "speedup_vs_post_training_baseline", (quantized, verdict["winner"])
        comparisons += _if_unresolved(
            f"speed-up of {verdict['winner']} over {quantized}", verdict, field, pair, tie_margin
        )
    return comparisons


def _if_unresolved(
    subject: str, record: Mapping[str, Any], field: str, variants: tuple[str, str], tie_margin: float
) -> list[OpenComparison]:
    """Return the comparison if its interval is too wide, else an empty list.

    A ratio near 1 must be known precisely enough to distinguish a difference of a few percent from no difference. For
    other ratios, ±`GAIN_RESOLUTION` is enough.
    """
    low, high = record[f"{field}_low"], record[f"{field}_high"]
    is_near_one = is_too_wide(low, high, tie_margin)
    if not is_near_one and high <= low * (1 + GAIN_RESOLUTION) ** 2:
        return []
    resolution = RESOLUTION if is_near_one else GAIN_RESOLUTION
    text = f"{subject}: {with_bounds(record, field)} times as fast, which is not known to ±{100 * resolution:g} %"
    return [OpenComparison(text, variants)]


def _with_latency_reasons(
    row: CheckedVariant, latency_reason: str, no_speedup_reasons: Mapping[str, str]
) -> CheckedVariant:
    """Add the reasons that depend on latencies to a row: the latency limit, and sparsity without a speed-up."""
    reasons = [each for each in (latency_reason, no_speedup_reasons.get(row["name"], "")) if each]
    return {**row, "inside_budget": row["inside_budget"] and not reasons, "reasons": [*row["reasons"], *reasons]}


def _variant_row(
    row: CheckedVariant, baseline: str, timings: Timings, devices: DeviceClass | None, limits: Mapping[str, Any]
) -> VariantRow:
    """Return the row with its latencies, its speed-up over the baseline, and its limits."""
    name = row["name"]
    speedup = ratio_fields("speedup", timings.ratio(baseline, name))
    return cast("VariantRow", {**row, **timings.latencies[name], **speedup, **device_field(devices, name), **limits})


FIX_RECORD = (
    "an earlier stage gave another result than in the recorded run; compare the digests, or run without the record"
)


def check_recorded(
    recorded: dict[str, Any], rows: Sequence[CheckedVariant], budget: Budget, targets: Sequence[str]
) -> None:
    """Raise StageError if recorded decisions name variants that do not exist or that break accuracy or size limits."""
    names = [row["name"] for row in rows]
    limits = {row["name"]: budget.limits(row["target"]) for row in rows}
    for name in recorded["too_slow"]:
        if name not in names:
            raise StageError(
                f"the recorded decision calls {name!r} too slow, but the variants are {_name_list(names)}; {FIX_RECORD}"
            )
        if not limits[name].has_latency_limit:
            raise StageError(f"the recorded decision calls {name!r} too slow, but the budget has no latency_p50_ms")
    for name in recorded["buys_nothing"]:
        if name not in names:
            raise StageError(
                f"the recorded decision says that {name!r} gives no speed-up, but the variants are "
                f"{_name_list(names)}; {FIX_RECORD}"
            )
    for target, name in recorded["winners"].items():
        if target not in targets:
            raise StageError(
                f"the recorded winner {name!r} is for target {target!r}; this run has {_name_list(targets)}"
            )
        row = next((row for row in rows if row["name"] == name and row["target"] == target), None)
        if row is None:
            target_names = [row["name"] for row in rows if row["target"] == target]
            raise StageError(
                f"the recorded winner of {target} is {name!r}, but its variants are {_name_list(target_names)}; "
                f"{FIX_RECORD}"
            )
        if not row["inside_budget"]:
            reasons = "; ".join(row["reasons"])
            raise StageError(f"the recorded winner of {target}, {name}, is outside the budget: {reasons}; {FIX_RECORD}")
        if name in recorded["too_slow"]:
            raise StageError(
                f"the record contradicts itself: {name} wins {target} and is too slow; remove one of the two"
            )
        if name in recorded["buys_nothing"]:
            raise StageError(
                f"the record contradicts itself: {name} wins {target} and gives no speed-up; remove one of the two"
            )


def _name_list(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"


def is_too_wide(low: float, high: float, margin: float) -> bool:
    """Return whether the interval of a ratio is wider than `RESOLUTION` allows and reaches within `margin` of 1.

    A measurement may continue for as long as this is true. It then ends when the interval is narrow enough (Chow &
    Robbins 1965, "On the asymptotic theory of fixed-width sequential confidence intervals for the mean"), or is farther
    from 1 than `margin`. If it continued until any difference shows, it would find one by chance.
    """
    near = low < 1 + margin and high > 1 / (1 + margin)
    return near and high > low * (1 + RESOLUTION) ** 2
