"""Choose the winners by latency, on this machine or on a class of devices.

A decision should not depend on the noise of a measurement. A difference that the intervals do not establish is
therefore a tie, and a tie goes to the smallest file, then to the first name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from edgekit.core.budget import BASELINE, VariantLimits
from edgekit.core.config import Budget
from edgekit.core.errors import StageError
from edgekit.core.schema.decisions import Decision as DecisionRow
from edgekit.core.schema.decisions import DecisionCandidate, DenseComparison, LimitComparison, is_winner_decision
from edgekit.core.schema.devices import DeviceClass, deciding_device_latency
from edgekit.core.schema.limits import AppliedLimits, ReferenceComparison
from edgekit.core.schema.variants import CheckedVariant
from edgekit.stages.benchmark.timings import Timings

FASTEST = "fastest"
FEWEST_BYTES = "tie: fewest bytes"
FIRST_NAME = "tie: same bytes, first name"
NO_WINNER = "none inside the budget"
RECORDED = "recorded"
OVERALL_WINNER = "winner over all targets"
"""Name of the decision that is about all targets together."""


@dataclass(frozen=True)
class ClassTimings:
    """The latencies that decide: those of this machine or, if there is a `record`, those of a class of devices.

    For devices, `timings` are those of the slowest device and have only the variants that were sent to it. A variant
    must meet the latency limit on all `others` as well.
    """

    timings: Timings
    others: tuple[Timings, ...] = ()
    record: DeviceClass | None = None

    def timed_rows(self, rows: Iterable[CheckedVariant]) -> list[CheckedVariant]:
        """Return the rows of the variants that were timed."""
        return [row for row in rows if row["name"] in self.timings.samples_ms]


class OpenComparison(NamedTuple):
    """A comparison that more rounds could settle, as text, and the variants that those rounds would have to time."""

    text: str
    variants: tuple[str, ...]


@dataclass(frozen=True)
class Choice:
    """The name of the winner, the rule by which it won, and the figures of all candidates."""

    chosen: str | None
    rule: str
    candidates: Sequence[DecisionCandidate | LimitComparison | DenseComparison]


@dataclass(frozen=True)
class Outcome:
    """The decisions that depend on latencies.

    `too_slow` has the variants over their latency limit, `comparisons` compares each sparse variant with its dense
    counterpart, `without_speedup` has the sparse variants that bring no speed-up, and `choices` has the choice by
    target.
    """

    too_slow: list[str]
    comparisons: list[DenseComparison]
    without_speedup: list[str]
    choices: dict[str, Choice]


def decide_outcome(
    rows: Sequence[CheckedVariant], deciding: ClassTimings, budget: Budget, targets: Sequence[str]
) -> Outcome:
    """Decide by latency among variants whose other limits have been checked."""
    rows = deciding.timed_rows(rows)
    slow_names = names_too_slow(rows, deciding, budget)
    comparisons = compare_all_with_dense(rows, slow_names, deciding.timings)
    no_speedup_names = without_speedup(comparisons)
    excluded = {*slow_names, *no_speedup_names}
    choices = {target: choose_winner(_eligible(rows, excluded, target), deciding.timings) for target in targets}
    return Outcome(slow_names, comparisons, no_speedup_names, choices)


def names_too_slow(rows: Sequence[CheckedVariant], deciding: ClassTimings, budget: Budget) -> list[str]:
    """Return the sorted names of the variants whose p50 significantly exceeds the limit of its target on any device.

    A limit, absolute or relative to a reference, is exceeded if the whole interval lies above it.
    """
    all_timings = (deciding.timings, *deciding.others)
    return sorted(row["name"] for row in rows if any(_exceeds_latency(row, rows, each, budget) for each in all_timings))


def _exceeds_latency(row: CheckedVariant, rows: Sequence[CheckedVariant], timings: Timings, budget: Budget) -> bool:
    name, limits = row["name"], budget.limits(row["target"])
    if not limits.has_latency_limit:
        return False

    def ratio_low(reference: str) -> float:
        return timings.ratio(name, reference_name(reference, row["target"], rows)).low

    return limits.exceeds_latency(timings.median(name).low_ms, ratio_low)


def winner_of(target: str) -> str:
    """Return the name of the decision on a target's winner."""
    return f"winner of {target}"


def winner_rows(choices: Mapping[str, Choice], chosen: Mapping[str, str], is_replayed: bool) -> list[DecisionRow]:
    """Return a row for each target with its winner, which may be a recorded one, and with the evidence of this run."""
    return [
        decision_row(winner_of(target), choice, chosen.get(target), choice.chosen, is_replayed)
        for target, choice in choices.items()
    ]


def decision_row(decision: str, choice: Choice, chosen: Any, own_choice: Any, is_replayed: bool = False) -> DecisionRow:
    """Return the record of a decision.

    `chosen` may come from a record. The evidence in `choice` and the decision `own_choice`, which follows from this
    evidence, are always those of this run.
    """
    record = {
        "decision": decision,
        "chosen": chosen,
        "rule": RECORDED if is_replayed else choice.rule,
        "candidates": choice.candidates,
        "replayed": is_replayed,
        "today": own_choice,
    }
    return cast("DecisionRow", record)


def too_close_to_call(decisions: Iterable[DecisionRow], tie_margin: float) -> list[OpenComparison]:
    """Return this run's winners that are part of a tie only because their interval is wide.

    With more rounds of all variants in the tie, such a variant either leaves the tie, or its whole interval falls below
    the margin.
    """
    return [
        OpenComparison(
            f"{decision['decision']}: {row['name']} takes {with_bounds(row, 'ratio')} times as long as the fastest, "
            f"and up to {1 + tie_margin:g} counts as a tie",
            tuple(each["name"] for each in decision["candidates"] if each["in_the_tie"]),
        )
        for decision in decisions
        if is_winner_decision(decision) and decision["decision"] != OVERALL_WINNER
        for row in decision["candidates"]
        if row["name"] == decision["today"] and row["ratio_low"] <= 1 + tie_margin < row["ratio_high"]
    ]


def with_bounds(row: Mapping[str, Any], name: str) -> str:
    """Return a figure with the bounds of its interval as text."""
    return f"{row[name]:.3g} ({row[f'{name}_low']:.3g} to {row[f'{name}_high']:.3g})"


def choose_winner(rows: Sequence[CheckedVariant], timings: Timings) -> Choice:
    """Choose the fastest variant. If others tie with it, the smallest file wins, then the first name."""
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


def _candidate(row: CheckedVariant, fastest: str, timings: Timings) -> DecisionCandidate:
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


def compare_with_limit(
    row: CheckedVariant, rows: Sequence[CheckedVariant], timings: Timings, budget: Budget, slow_names: Iterable[str]
) -> LimitComparison:
    """Return a variant's p50 with its interval and, if the limit is relative, the comparison with its reference."""
    median = timings.median(row["name"])
    comparison = {
        "name": row["name"],
        "p50_ms": median.p50_ms,
        "low_ms": median.low_ms,
        "high_ms": median.high_ms,
        "too_slow": row["name"] in slow_names,
        **reference_field(row, rows, timings, budget),
    }
    return cast("LimitComparison", comparison)


def _eligible(rows: Iterable[CheckedVariant], excluded: Iterable[str], target: str) -> list[CheckedVariant]:
    return [row for row in rows if row["target"] == target and row["inside_budget"] and row["name"] not in excluded]


TARGET_LIMIT = "the limit of its target"


def reference_name(reference: str, target: str, rows: Iterable[Mapping[str, Any]]) -> str:
    """Return the name under which a reference was timed.

    Raises StageError if the reference is the baseline and the baseline has no float file for the target.
    """
    return str(_float_baseline(target, rows)["name"]) if reference == BASELINE else reference


def reference_names(rows: Sequence[Mapping[str, Any]], budget: Budget, targets: Iterable[str]) -> set[str]:
    """Return the names of the variants and reference models to which the latency limits of these targets refer."""
    limits = {target: budget.limits(target).latency_p50 for target in targets}
    return {reference_name(limit.of, target, rows) for target, limit in limits.items() if limit is not None}


def baseline_bytes(target: str, rows: Iterable[Mapping[str, Any]], limits: VariantLimits) -> int | None:
    """Return the size of the baseline's float file for the target if the size limit refers to it, else None."""
    if limits.size is None or limits.size.of != BASELINE:
        return None
    return int(_float_baseline(target, rows)["bytes"])


def reference_field(
    row: CheckedVariant, rows: Sequence[CheckedVariant], timings: Timings, budget: Budget
) -> dict[str, ReferenceComparison]:
    """Return the `beside` field of a row if its latency limit is relative, else no field.

    The field has the ratio of the variant's p50 to the p50 of the reference of this limit.
    """
    relative = budget.limits(row["target"]).latency_p50
    if relative is None:
        return {}
    name = reference_name(relative.of, row["target"], rows)
    if not {row["name"], name} <= timings.samples_ms.keys():  # devices receive only variants that can win
        return {}
    ratio = timings.ratio(row["name"], name)
    figures = {"ratio": ratio.ratio, "ratio_low": ratio.low, "ratio_high": ratio.high}
    return {"beside": {"name": name, "limit": relative.ratio, **figures}}  # type: ignore[typeddict-item]


def limits_field(
    row: CheckedVariant, rows: Sequence[CheckedVariant], timings: Timings | None, budget: Budget
) -> dict[str, AppliedLimits]:
    """Return the `limits` field of a row, or no field if the budget consists of plain numbers.

    Without `timings`, for example because devices decided in another run, the ratio to the reference is left out.
    """
    if budget.is_plain:
        return {}
    limits = budget.limits(row["target"])
    max_bytes = limits.max_bytes(baseline_bytes(row["target"], rows, limits))
    reference = reference_field(row, rows, timings, budget) if timings else {}
    return {"limits": {"latency_p50_ms": limits.latency_p50_ms, "size_bytes": max_bytes, **reference}}  # type: ignore[typeddict-item]


def latency_excess(
    row: CheckedVariant,
    rows: Sequence[CheckedVariant],
    timings: Timings,
    budget: Budget,
    devices: DeviceClass | None,
) -> float:
    """Return by how much the p50 of a row exceeds its limit, as a share of the limit.

    The result is negative if the p50 is below the limit.

    If devices decided, the p50s of the slowest device are used.
    """

    def deciding_ms(name: str) -> float:
        device_ms = deciding_device_latency(devices, name)["p50_ms"] if devices else None
        return timings.p50_ms(name) if device_ms is None else device_ms

    limits = budget.limits(row["target"])
    if limits.latency_p50 is not None:
        name = reference_name(limits.latency_p50.of, row["target"], rows)
        ratio = deciding_ms(row["name"]) / deciding_ms(name) if devices else timings.ratio(row["name"], name).ratio
        return ratio / limits.latency_p50.ratio - 1
    return deciding_ms(row["name"]) / limits.latency_p50_ms - 1 if limits.latency_p50_ms else 0.0


def limit_text(budget: Budget, targets: Iterable[str]) -> str:
    """Return the latency limit as text, for example `0.052 ms`; empty if no target has one."""
    texts = {budget.limits(target).latency_text() for target in targets}
    return TARGET_LIMIT if len(texts) > 1 else texts.pop() if texts else ""


def _float_baseline(target: str, rows: Iterable[Mapping[str, Any]]) -> Mapping[str, Any]:
    baseline_key = (BASELINE, "fp32", target)
    baseline = next((row for row in rows if (row["model"], row["precision"], row["target"]) == baseline_key), None)
    if baseline is None:
        raise StageError(
            f"budget: a limit of {target} is relative to the baseline, and the baseline has no float file for it; "
            f"see notebook 05 for the reason, or give {target} an absolute limit in budget.targets"
        )
    return baseline


SPARSITY_DECISION = "sparsity without speed-up"
"""Name of the decision about sparse variants."""
DENSE_MODEL = {"sparse": "student"}
"""The dense network from which each sparse one was made."""


def compare_all_with_dense(
    rows: Sequence[CheckedVariant], slow_names: Collection[str], timings: Timings
) -> list[DenseComparison]:
    """Compare each sparse variant with its dense counterpart of the same precision and target.

    A sparse variant whose counterpart is outside the budget is not compared, because the counterpart could not be used
    instead.

    Zeros make a call shorter only if the kernels skip them. They make a file smaller only if its weights are stored in
    a sparse format (`convert.sparse_weights`) or if the file is compressed, and files in a bundle are not compressed.
    A sparse variant is worth using if it is significantly faster by more than `tie_margin`, or if it is not slower and
    its file is smaller by more than `tie_margin`. The compressed size is reported as well, but decides nothing.
    """
    dense_rows = {
        (row["model"], row["precision"], row["target"]): row
        for row in rows
        if row["inside_budget"] and row["name"] not in slow_names
    }
    return [
        _compare_with_dense(row, dense_rows[key], timings)
        for row in rows
        if (key := (DENSE_MODEL.get(row["model"], ""), row["precision"], row["target"])) in dense_rows
    ]


def without_speedup(comparisons: Iterable[DenseComparison]) -> list[str]:
    """Return the sorted names of the sparse variants that are neither faster nor smaller."""
    return sorted(row["name"] for row in comparisons if not row["buys"])


def no_speedup_reason(name: str, comparisons: Iterable[DenseComparison], is_replayed: bool) -> str:
    """Say why a sparse variant without a speed-up is rejected, with this run's figures."""
    suffix = ", as recorded" if is_replayed else ""
    row = next((row for row in comparisons if row["name"] == name), None)
    if row is None:
        return f"no speed-up{suffix}"
    interval = f"{row['ratio_low']:.2f}–{row['ratio_high']:.2f}"
    return (
        f"no speed-up{suffix}: {row['ratio']:.2f}× ({interval}) as fast as {row['dense']}, "
        f"{100 * row['bytes_share']:.0f} % of its bytes, compressed {100 * row['zipped_share']:.0f} %"
    )


def _compare_with_dense(row: CheckedVariant, dense: CheckedVariant, timings: Timings) -> DenseComparison:
    """Compare a sparse variant with its dense counterpart.

    `ratio` says how many times as fast the sparse variant is. The two shares are its size and its compressed size,
    divided by those of the dense variant.
    """
    ratio = timings.ratio(dense["name"], row["name"])
    is_smaller = row["bytes"] * (1 + timings.tie_margin) < dense["bytes"]
    is_slower = timings.is_slower(timings.ratio(row["name"], dense["name"]))
    return {
        "name": row["name"],
        "dense": dense["name"],
        "ratio": ratio.ratio,
        "ratio_low": ratio.low,
        "ratio_high": ratio.high,
        "bytes_share": row["bytes"] / dense["bytes"],
        "zipped_bytes": row["zipped_bytes"],
        "zipped_share": row["zipped_bytes"] / dense["zipped_bytes"],
        "buys": timings.is_slower(ratio) or (is_smaller and not is_slower),
    }
