"""Decide: which variants meet the budget, and which of them wins its target. What was decided can be replayed."""

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
from edgekit.device.measure.intervals import RESOLUTION, is_too_wide
from edgekit.stages.benchmark.account import (
    device_field,
    nearest_miss,
    post_training_baseline,
    verdict,
    waterfall,
    with_interval,
)
from edgekit.stages.benchmark.timings import Timings
from edgekit.stages.benchmark.winners import (
    OVER_ALL,
    RECORDED,
    SPARSITY_DECISION,
    Choice,
    ClassTimings,
    OpenComparison,
    Outcome,
    against_limit,
    baseline_bytes,
    choose,
    decision_row,
    limit_words,
    limits_field,
    no_speedup_reason,
    outcome_of,
    with_ends,
)
from edgekit.stages.benchmark.winners import winners as winner_rows

ABOVE_LIMIT = "whole interval above the limit"
BUYS_NOTHING = "neither faster nor smaller than without them"
GAIN_RESOLUTION = 0.15
"""How far from a speed-up, as a share, the ends of its interval may lie for it to be shown as known."""


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
    rows: Sequence[ModelFacts],
    timings: Timings,
    budget: Budget,
    targets: Sequence[str],
    recorded: dict[str, Any] | None = None,
    deciding: ClassTimings | None = None,
) -> Decision:
    """The first row is the unmodified baseline; the others have their drop on validation (`accuracy_drop.Drop`), or
    for a classification what it is computed from, `lost` and `gained` of `samples`.

    `timings` are of this machine. They decide, unless those of a class of devices are given (`deciding`).
    `recorded` decisions are followed, and today's are reported beside them; StageError if they cannot be. Those of
    devices come with their evidence, since this machine's says nothing about theirs.
    """
    deciding = deciding or ClassTimings(timings)
    first, *variants = rows
    baseline = cast("BaselineFacts", first)
    checked = check_all(variants, budget)
    if recorded is not None:
        check_recorded(recorded, checked, budget, targets)
    found = outcome_of(checked, deciding, budget, targets)
    before = recorded.get(replay.DEVICE_DECISIONS) if recorded else None
    if before:
        decisions = recorded_decisions(before["decisions"])
    else:
        decisions = _decisions(checked, found, deciding, budget, recorded)
    devices = before["devices"] if before else deciding.record
    measured = recorded or _measured(found, devices, decisions)
    winners, slow, nothing = measured["winners"], measured["too_slow"], measured["buys_nothing"]

    replaying = recorded is not None
    compared = next((row["candidates"] for row in decisions if row["decision"] == SPARSITY_DECISION), [])
    reasons = {name: no_speedup_reason(name, cast("list[DenseComparison]", compared), replaying) for name in nothing}
    source = f"{_on(devices)}{', as recorded' if replaying else ''}"
    shown = [
        _with_measured(row, _over(row, budget) + source if row["name"] in slow else "", reasons) for row in checked
    ]
    told = None if before else deciding.timings  # what devices said of a ratio in another run is not known here
    overall_name = next(row["chosen"] for row in decisions if row["decision"] == OVER_ALL)
    overall = next((row for row in shown if row["name"] == overall_name), None)

    post_training = post_training_baseline(shown, timings)
    facts = [{name: value for name, value in row.items() if name != "zipped_bytes"} for row in checked]  # zlibs differ
    content = {"variants": [baseline, *facts], "measured": measured, "budget": budget.model_dump()}

    def nearest(rows: list[CheckedVariant]) -> NearestMiss | None:
        return nearest_miss(rows, slow, timings, budget, devices, told)

    metrics = {
        "variants": content["variants"],
        "budget": content["budget"],
        "winners": winners,
        "winner": overall_name,
        "post_training_baseline": post_training,
        "rows": [
            {**baseline, **timings.latencies[baseline["name"]]},
            *(
                _timed(row, baseline["name"], timings, devices, limits_field(row, checked, told, budget))
                for row in shown
            ),
        ],
        "waterfall": waterfall(overall, shown, timings, baseline) if overall else [],
        "verdict": verdict(overall, post_training, baseline, timings, devices),
        "nearest_miss": None if overall else nearest(shown),
        "unmet": {
            target: nearest([row for row in shown if row["target"] == target])
            for target in targets
            if target not in winners
        },
        "decisions": decisions,
        **({"devices": devices} if devices else {}),
    }
    return Decision(content, decisions, metrics)


def recorded_decisions(rows: Sequence[DecisionRow]) -> list[DecisionRow]:
    """Those of devices that are followed now: their evidence is the recorded one, for nobody asked them again."""
    return [cast("DecisionRow", {**row, "rule": RECORDED, "replayed": True}) for row in rows]


def _measured(found: Outcome, devices: DeviceClass | None, decisions: list[DecisionRow]) -> dict[str, Any]:
    today = {target: choice.chosen for target, choice in found.choices.items() if choice.chosen}
    measured = {"winners": today, "too_slow": found.too_slow, "buys_nothing": found.buys_nothing}
    return (
        measured
        if devices is None
        else {**measured, replay.DEVICE_DECISIONS: {"devices": devices, "decisions": decisions}}
    )


def _decisions(
    checked: Sequence[CheckedVariant],
    found: Outcome,
    deciding: ClassTimings,
    budget: Budget,
    recorded: dict[str, Any] | None,
) -> list[DecisionRow]:
    """One for each target, one over all of them, and those about the limit and zeros, with what was measured now."""
    today = {target: choice.chosen for target, choice in found.choices.items() if choice.chosen}
    replaying = recorded is not None
    measured = recorded or _measured(found, None, [])
    by_name = {row["name"]: row for row in checked}
    decisions = winner_rows(found.choices, measured["winners"], replaying)
    over_all = choose([by_name[name] for name in measured["winners"].values()], deciding.timings)
    today_overall = choose([by_name[name] for name in today.values()], deciding.timings).chosen
    decisions.append(decision_row(OVER_ALL, over_all, over_all.chosen, today_overall))
    if words := limit_words(budget, list(found.choices)):
        timed = deciding.timed(checked)
        against = [against_limit(row, timed, deciding.timings, budget, found.too_slow) for row in timed]
        limited = Choice(None, ABOVE_LIMIT, against)
        decisions.append(
            decision_row(f"too slow for {words}", limited, measured["too_slow"], found.too_slow, replaying)
        )
    if found.compared or measured["buys_nothing"]:
        beside = Choice(None, BUYS_NOTHING, found.compared)
        nothing = measured["buys_nothing"]
        decisions.append(decision_row(SPARSITY_DECISION, beside, nothing, found.buys_nothing, replaying))
    if deciding.record is None:
        return decisions
    named = {"where": deciding.record["where"], "host": deciding.record["slowest"]}
    return [cast("DecisionRow", {**row, **named}) for row in decisions]


def _over(row: CheckedVariant, budget: Budget) -> str:
    return f"p50 is over {budget.limits(row['target']).latency_text()}"


def _on(devices: DeviceClass | None) -> str:
    return f" on {devices['where']}" if devices else ""


def check_all(rows: Sequence[Mapping[str, Any]], budget: Budget) -> list[CheckedVariant]:
    """`check_limits` of every variant of a run."""
    return [check_limits(row, budget, rows) for row in rows]


def check_limits(row: Mapping[str, Any], budget: Budget, rows: Sequence[Mapping[str, Any]] = ()) -> CheckedVariant:
    """The row with its drop on validation, what bounds it, and the limits of accuracy and size that it breaks.

    A size relative to the baseline is that of its float file among the `rows`.
    """
    figures = {field.name: row[field.name] for field in fields(Drop) if field.name in row}
    drop = (
        Drop(**figures) if "bound_pp" in figures else drop_of_counts(**figures, confidence=budget.accuracy_confidence)
    )
    refused = budget_violation(drop, budget.accuracy_drop_pp)
    broken = [refused] if refused else []
    limits = budget.limits(row["target"])
    theirs = baseline_bytes(row["target"], rows, limits)
    most = limits.max_bytes(theirs)
    if most is not None and row["bytes"] > most:
        broken.append(f"{row['bytes']:,} bytes are over {limits.size_text(theirs, unit='')}")
    return cast("CheckedVariant", {**row, **asdict(drop), "inside_budget": not broken, "reasons": broken})


def unresolved_steps(waterfall: Sequence[WaterfallStep], tie_margin: float) -> list[OpenComparison]:
    """Each step whose gain is not known well enough to be shown."""
    found = []
    before = ""
    for step in waterfall:
        if "gain" in step:
            found += _unresolved(f"gain of {step['step']}", step, "gain", (before, step["variant"]), tie_margin)
        before = step["variant"] if step["kept"] else before
    return found


def unresolved_speedups(metrics: Mapping[str, Any], tie_margin: float) -> list[OpenComparison]:
    """Each winner whose speed-up over the baseline, or over quantization, is not known well enough to be shown."""
    baseline, *variants = metrics["rows"]
    winners = [row for row in variants if row["name"] in metrics["winners"].values()]
    found = []
    for row in winners:
        pair = (baseline["name"], row["name"])
        found += _unresolved(f"speed-up of {row['name']}", row, "speedup", pair, tie_margin)
    verdict, quantized = metrics["verdict"], metrics["post_training_baseline"]
    if verdict["met"] and quantized and quantized != verdict["winner"]:
        field, pair = "speedup_vs_post_training_baseline", (quantized, verdict["winner"])
        found += _unresolved(f"speed-up of {verdict['winner']} over {quantized}", verdict, field, pair, tie_margin)
    return found


def _unresolved(
    what: str, record: Mapping[str, Any], field: str, variants: tuple[str, str], tie_margin: float
) -> list[OpenComparison]:
    """The comparison, where its interval is too wide to be shown.

    Near 1 the interval must tell a few percent from nothing; elsewhere it must be at most ±`GAIN_RESOLUTION` wide.
    """
    low, high = record[f"{field}_low"], record[f"{field}_high"]
    near_1 = is_too_wide(low, high, tie_margin)
    if not near_1 and high <= low * (1 + GAIN_RESOLUTION) ** 2:
        return []
    share = RESOLUTION if near_1 else GAIN_RESOLUTION
    words = f"{what}: {with_ends(record, field)} times as fast, which is not known to ±{100 * share:g} %"
    return [OpenComparison(words, variants)]


def _with_measured(row: CheckedVariant, over: str, nothing: Mapping[str, str]) -> CheckedVariant:
    """The row with what rests on a clock as well: the limit of latency, and why a sparse one is rejected."""
    reasons = [each for each in (over, nothing.get(row["name"], "")) if each]
    return {**row, "inside_budget": row["inside_budget"] and not reasons, "reasons": [*row["reasons"], *reasons]}


def _timed(
    row: CheckedVariant, baseline: str, timings: Timings, devices: DeviceClass | None, held: Mapping[str, Any]
) -> VariantRow:
    """The row with its latencies, how many times the baseline's speed it has, and what it was held to."""
    name = row["name"]
    gain = with_interval("speedup", timings.ratio(baseline, name))
    return cast("VariantRow", {**row, **timings.latencies[name], **gain, **device_field(devices, name), **held})


FIX_RECORD = (
    "an earlier stage gave another result than the recorded one; compare their digests, or run without the record"
)


def check_recorded(
    recorded: dict[str, Any], rows: Sequence[CheckedVariant], budget: Budget, targets: Sequence[str]
) -> None:
    """StageError where a recorded winner is not there to win, or breaks a limit that needs no clock."""
    names = [row["name"] for row in rows]
    held = {row["name"]: budget.limits(row["target"]) for row in rows}
    for name in recorded["too_slow"]:
        if name not in names:
            raise StageError(
                f"the recorded decision calls {name!r} too slow, which is not among {_list(names)}; {FIX_RECORD}"
            )
        if not held[name].has_latency_limit:
            raise StageError(f"the recorded decision calls {name!r} too slow, but the budget has no latency_p50_ms")
    for name in recorded["buys_nothing"]:
        if name not in names:
            raise StageError(
                f"the recorded decision says that {name!r} gives no speed-up, which is not among {_list(names)}; "
                f"{FIX_RECORD}"
            )
    for target, name in recorded["winners"].items():
        if target not in targets:
            raise StageError(f"the recorded winner {name!r} is for target {target!r}; this run has {_list(targets)}")
        row = next((row for row in rows if row["name"] == name and row["target"] == target), None)
        if row is None:
            own = [row["name"] for row in rows if row["target"] == target]
            raise StageError(
                f"the recorded winner of {target} is {name!r}, which is not among {_list(own)}; {FIX_RECORD}"
            )
        if not row["inside_budget"]:
            reasons = "; ".join(row["reasons"])
            raise StageError(f"the recorded winner of {target}, {name}, is outside the budget: {reasons}; {FIX_RECORD}")
        if name in recorded["too_slow"]:
            raise StageError(f"the record contradicts itself: {name} wins {target} and is too slow; remove it")
        if name in recorded["buys_nothing"]:
            raise StageError(f"the record contradicts itself: {name} wins {target} and gives no speed-up; remove it")


def _list(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"
