"""Winners: what latencies decide, those of this machine or those of a class of devices.

What rests on a measurement must not turn with its noise: a difference that the intervals do not establish is a tie,
and a tie goes to the fewest bytes, then to the first name.
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
OVER_ALL = "winner over all targets"
"""The `decision` of the row that is about no single target."""


@dataclass(frozen=True)
class ClassTimings:
    """The latencies that decide: this machine's, or where there is a `record` those of the devices in it.

    `timings` are then of the slowest of them, of the variants that were sent there. On all `others`, too, a variant
    must keep the limit of latency.
    """

    timings: Timings
    others: tuple[Timings, ...] = ()
    record: DeviceClass | None = None

    def timed(self, rows: Iterable[CheckedVariant]) -> list[CheckedVariant]:
        """Those that these latencies are of."""
        return [row for row in rows if row["name"] in self.timings.samples_ms]


class OpenComparison(NamedTuple):
    """What more rounds would settle, in words, and the variants that they would have to time."""

    words: str
    variants: tuple[str, ...]


@dataclass(frozen=True)
class Choice:
    """Who won, by which rule, and how near the others came."""

    chosen: str | None
    rule: str
    candidates: Sequence[DecisionCandidate | LimitComparison | DenseComparison]


@dataclass(frozen=True)
class Outcome:
    """Names that are over the limit of latency, zeros beside none, names for which zeros give no speed-up, and the
    winner of each target."""

    too_slow: list[str]
    compared: list[DenseComparison]
    buys_nothing: list[str]
    choices: dict[str, Choice]


def outcome_of(
    rows: Sequence[CheckedVariant], deciding: ClassTimings, budget: Budget, targets: Sequence[str]
) -> Outcome:
    """What these latencies decide of variants whose other limits are checked."""
    rows = deciding.timed(rows)
    slow = too_slow(rows, deciding, budget)
    compared = against_dense(rows, slow, deciding.timings)
    nothing = without_speedup(compared)
    out = {*slow, *nothing}
    choices = {target: choose(_inside(rows, out, target), deciding.timings) for target in targets}
    return Outcome(slow, compared, nothing, choices)


def too_slow(rows: Sequence[CheckedVariant], deciding: ClassTimings, budget: Budget) -> list[str]:
    """Names of the variants whose p50 is over its target's limit for sure, on any of the devices; sorted.

    Absolute or a ratio to a reference, a limit is broken where the whole interval is above it.
    """
    everywhere = (deciding.timings, *deciding.others)
    return sorted(row["name"] for row in rows if any(_is_late(row, rows, each, budget) for each in everywhere))


def _is_late(row: CheckedVariant, rows: Sequence[CheckedVariant], timings: Timings, budget: Budget) -> bool:
    name, limits = row["name"], budget.limits(row["target"])
    if not limits.has_latency_limit:
        return False

    def ratio_low(of: str) -> float:
        return timings.ratio(name, reference(of, row["target"], rows)).low

    return limits.exceeds_latency(timings.median(name).low_ms, ratio_low)


def winner_of(target: str) -> str:
    """What the decision on a target's winner is called in every record."""
    return f"winner of {target}"


def winners(choices: Mapping[str, Choice], chosen: Mapping[str, str], replayed: bool) -> list[DecisionRow]:
    """A row for each target: who won, with today's evidence; `chosen` is what counts, be it replayed."""
    return [
        decision_row(winner_of(target), choice, chosen.get(target), choice.chosen, replayed)
        for target, choice in choices.items()
    ]


def decision_row(decision: str, choice: Choice, chosen: Any, today: Any, replayed: bool = False) -> DecisionRow:
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


def too_close_to_call(decisions: Iterable[DecisionRow], tie_margin: float) -> list[OpenComparison]:
    """Each of today's winners of a target that stands in the tie only because its interval is wide.

    With more rounds of all that is in the tie, it either leaves it, or its whole interval comes below the margin.
    """
    return [
        OpenComparison(
            f"{decision['decision']}: {row['name']} takes {with_ends(row, 'ratio')} times as long as the fastest, and "
            f"a tie ends at {1 + tie_margin:g}",
            tuple(each["name"] for each in decision["candidates"] if each["in_the_tie"]),
        )
        for decision in decisions
        if is_winner_decision(decision) and decision["decision"] != OVER_ALL
        for row in decision["candidates"]
        if row["name"] == decision["today"] and row["ratio_low"] <= 1 + tie_margin < row["ratio_high"]
    ]


def with_ends(row: Mapping[str, Any], name: str) -> str:
    """A figure with the ends of its interval, in words."""
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


def against_limit(
    row: CheckedVariant, rows: Sequence[CheckedVariant], timings: Timings, budget: Budget, slow: Iterable[str]
) -> LimitComparison:
    """A variant's median beside the limit, and where that is relative, beside its reference."""
    median = timings.median(row["name"])
    found = {
        "name": row["name"],
        "p50_ms": median.p50_ms,
        "low_ms": median.low_ms,
        "high_ms": median.high_ms,
        "too_slow": row["name"] in slow,
        **beside_field(row, rows, timings, budget),
    }
    return cast("LimitComparison", found)


def _inside(rows: Iterable[CheckedVariant], out: Iterable[str], target: str) -> list[CheckedVariant]:
    return [row for row in rows if row["target"] == target and row["inside_budget"] and row["name"] not in out]


OWN = "the limit of its target"


def reference(of: str, target: str, rows: Iterable[Mapping[str, Any]]) -> str:
    """The name under which a reference was timed; StageError for a baseline without a float file on the target."""
    return str(_float_baseline(target, rows)["name"]) if of == BASELINE else of


def references(rows: Sequence[Mapping[str, Any]], budget: Budget, targets: Iterable[str]) -> set[str]:
    """What must be timed beside the variants of these targets, by the names of rows and rivals."""
    held = {target: budget.limits(target).latency_p50 for target in targets}
    return {reference(limit.of, target, rows) for target, limit in held.items() if limit is not None}


def baseline_bytes(target: str, rows: Iterable[Mapping[str, Any]], limits: VariantLimits) -> int | None:
    """Of the baseline's float file on the target, where its size is what limits it."""
    if limits.size is None or limits.size.of != BASELINE:
        return None
    return int(_float_baseline(target, rows)["bytes"])


def beside_field(
    row: CheckedVariant, rows: Sequence[CheckedVariant], timings: Timings, budget: Budget
) -> dict[str, ReferenceComparison]:
    """`beside` of a row whose limit is relative: how its p50 compares with the reference's in the same rounds."""
    relative = budget.limits(row["target"]).latency_p50
    if relative is None:
        return {}
    name = reference(relative.of, row["target"], rows)
    if not {row["name"], name} <= timings.samples_ms.keys():  # devices are sent only what may win
        return {}
    found = timings.ratio(row["name"], name)
    figures = {"ratio": found.ratio, "ratio_low": found.low, "ratio_high": found.high}
    return {"beside": {"name": name, "limit": relative.ratio, **figures}}  # type: ignore[typeddict-item]


def limits_field(
    row: CheckedVariant, rows: Sequence[CheckedVariant], timings: Timings | None, budget: Budget
) -> dict[str, AppliedLimits]:
    """`limits` of a row: what it was held to, where the budget's two numbers do not say it.

    Without `timings` nobody knows the ratio, as where devices decided in another run.
    """
    if budget.is_plain:
        return {}
    limits = budget.limits(row["target"])
    most = limits.max_bytes(baseline_bytes(row["target"], rows, limits))
    beside = beside_field(row, rows, timings, budget) if timings else {}
    return {"limits": {"latency_p50_ms": limits.latency_p50_ms, "size_bytes": most, **beside}}  # type: ignore[typeddict-item]


def excess(
    row: CheckedVariant,
    rows: Sequence[CheckedVariant],
    timings: Timings,
    budget: Budget,
    devices: DeviceClass | None,
) -> float:
    """By what share its p50 is over its limit; below 0 where it is not. Devices' p50s count where they decided."""

    def deciding_ms(name: str) -> float:
        there_ms = deciding_device_latency(devices, name)["p50_ms"] if devices else None
        return timings.p50_ms(name) if there_ms is None else there_ms

    limits = budget.limits(row["target"])
    if limits.latency_p50 is not None:
        name = reference(limits.latency_p50.of, row["target"], rows)
        ratio = deciding_ms(row["name"]) / deciding_ms(name) if devices else timings.ratio(row["name"], name).ratio
        return ratio / limits.latency_p50.ratio - 1
    return deciding_ms(row["name"]) / limits.latency_p50_ms - 1 if limits.latency_p50_ms else 0.0


def limit_words(budget: Budget, targets: Iterable[str]) -> str:
    """The limit of latency as a decision names it: `0.052 ms`; empty where no target has one."""
    found = {budget.limits(target).latency_text() for target in targets}
    return OWN if len(found) > 1 else found.pop() if found else ""


def _float_baseline(target: str, rows: Iterable[Mapping[str, Any]]) -> Mapping[str, Any]:
    wanted = (BASELINE, "fp32", target)
    found = next((row for row in rows if (row["model"], row["precision"], row["target"]) == wanted), None)
    if found is None:
        raise StageError(
            f"budget: a limit of {target} is relative to the baseline, and there is no float file of it; see in "
            f"notebook 05 why, or give {target} an absolute limit in budget.targets"
        )
    return found


SPARSITY_DECISION = "sparsity without speed-up"
"""Name of the decision in the result."""
DENSE = {"sparse": "student"}
"""The network that a sparse one was made from."""


def against_dense(rows: Sequence[CheckedVariant], slow: Collection[str], timings: Timings) -> list[DenseComparison]:
    """Each sparse variant beside its dense counterpart, of the same precision and target: is it faster?

    A counterpart that is outside the budget itself is none: nobody could take it instead.

    Zeros shorten a call only where the kernels skip them, and a file only where it stores them as such (as
    `convert.sparse_weights` does) or somebody compresses it, which a bundle does not. A sparse variant is rejected that
    is neither surely faster nor, at the same speed, smaller, each by `tie_margin`. Its compressed size is reported.
    """
    dense = {
        (row["model"], row["precision"], row["target"]): row
        for row in rows
        if row["inside_budget"] and row["name"] not in slow
    }
    return [
        _beside(row, dense[key], timings)
        for row in rows
        if (key := (DENSE.get(row["model"], ""), row["precision"], row["target"])) in dense
    ]


def without_speedup(compared: Iterable[DenseComparison]) -> list[str]:
    """Names of the sparse variants that are neither faster nor smaller, sorted."""
    return sorted(row["name"] for row in compared if not row["buys"])


def no_speedup_reason(name: str, compared: Iterable[DenseComparison], replaying: bool) -> str:
    """Why a variant without speed-up is rejected, with today's figures."""
    recorded = ", as recorded" if replaying else ""
    row = next((row for row in compared if row["name"] == name), None)
    if row is None:
        return f"no speed-up{recorded}"
    interval = f"{row['ratio_low']:.2f}–{row['ratio_high']:.2f}"
    return (
        f"no speed-up{recorded}: {row['ratio']:.2f}× ({interval}) as fast as {row['dense']}, "
        f"{100 * row['bytes_share']:.0f} % of its bytes, compressed {100 * row['zipped_share']:.0f} %"
    )


def _beside(row: CheckedVariant, dense: CheckedVariant, timings: Timings) -> DenseComparison:
    """`ratio`: how many times as fast as the dense one; both shares: bytes, and compressed ones, of that one's."""
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
