"""Winners: what latencies decide, those of this machine or those of a class of devices.

What rests on a measurement must not turn with its noise: a difference that the intervals do not establish is a tie,
and a tie goes to the fewest bytes, then to the first name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from edgekit.core.config import Budget
from edgekit.core.schema.decisions import AgainstDense, AgainstLimit, Candidate, is_choice
from edgekit.core.schema.decisions import Decision as DecisionRow
from edgekit.core.schema.devices import DeviceClass
from edgekit.core.schema.variants import CheckedVariant
from edgekit.stages.benchmark import limit, sparsity
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
    candidates: Sequence[Candidate | AgainstLimit | AgainstDense]


@dataclass(frozen=True)
class Outcome:
    """Names that are over the limit of latency, zeros beside none, names for which zeros give no speed-up, and the
    winner of each target."""

    too_slow: list[str]
    compared: list[AgainstDense]
    buys_nothing: list[str]
    choices: dict[str, Choice]


def outcome_of(
    rows: Sequence[CheckedVariant], deciding: ClassTimings, budget: Budget, targets: Sequence[str]
) -> Outcome:
    """What these latencies decide of variants whose other limits are checked."""
    rows = deciding.timed(rows)
    slow = too_slow(rows, deciding, budget)
    compared = sparsity.against_dense(rows, slow, deciding.timings)
    nothing = sparsity.without_speedup(compared)
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
    if not limits.on_latency:
        return False

    def ratio_low(of: str) -> float:
        return timings.ratio(name, limit.reference(of, row["target"], rows)).low

    return limits.is_late(timings.median(name).low_ms, ratio_low)


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
        if is_choice(decision) and decision["decision"] != OVER_ALL
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


def against_limit(
    row: CheckedVariant, rows: Sequence[CheckedVariant], timings: Timings, budget: Budget, slow: Iterable[str]
) -> AgainstLimit:
    """A variant's median beside the limit, and where that is relative, beside its reference."""
    median = timings.median(row["name"])
    found = {
        "name": row["name"],
        "p50_ms": median.p50_ms,
        "low_ms": median.low_ms,
        "high_ms": median.high_ms,
        "too_slow": row["name"] in slow,
        **limit.beside_field(row, rows, timings, budget),
    }
    return cast("AgainstLimit", found)


def _inside(rows: Iterable[CheckedVariant], out: Iterable[str], target: str) -> list[CheckedVariant]:
    return [row for row in rows if row["target"] == target and row["inside_budget"] and row["name"] not in out]
