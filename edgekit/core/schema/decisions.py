"""Decisions that rest on a latency: records of result.json."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired, TypeGuard

from pydantic import Field

from edgekit.core.schema.limits import ReferenceComparison
from edgekit.core.schema.record import Record


class DecisionCandidate(Record):
    """A variant that a decision considered, compared with the one that was fastest by point estimate."""

    name: Annotated[str, Field(description="the variant")]
    bytes: Annotated[int, Field(gt=0, description="size of the model's files")]
    p50_ms: Annotated[float, Field(gt=0, description="median, milliseconds")]
    ratio: Annotated[float, Field(gt=0, description="its time divided by that of the fastest")]
    ratio_low: Annotated[float, Field(gt=0, description="lower bound of that ratio's interval")]
    ratio_high: Annotated[float, Field(gt=0, description="upper bound of that ratio's interval")]
    in_the_tie: Annotated[bool, Field(description="true if the interval does not show that it is significantly slower")]


class DecisionPlace(Record):
    """The place where the decision's latencies were measured."""

    where: NotRequired[
        Annotated[str, Field(description="class of the devices that decided; absent if this machine decided")]
    ]
    host: NotRequired[
        Annotated[str, Field(description="slowest device of the class; empty if nothing was sent to any device")]
    ]


class WinnerDecision(DecisionPlace):
    """The choice of a winner, with its rule and the candidates."""

    decision: Annotated[str, Field(description="what was decided: the winner of a target, or the overall winner")]
    chosen: Annotated[str | None, Field(description="name of the winner; null if no variant is inside the budget")]
    rule: Annotated[
        Literal["fastest", "tie: fewest bytes", "tie: same bytes, first name", "none inside the budget", "recorded"],
        Field(description="why it won"),
    ]
    candidates: Annotated[
        list[DecisionCandidate], Field(description="every variant inside the budget, the fastest first")
    ]
    replayed: Annotated[bool, Field(description="true if the decision of an earlier run was replayed")]
    today: Annotated[str | None, Field(description="what this run's own measurement would choose")]


class LimitComparison(Record):
    """A variant's median compared with the limit of the budget."""

    name: Annotated[str, Field(description="the variant")]
    p50_ms: Annotated[float, Field(gt=0, description="median over the rounds, milliseconds")]
    low_ms: Annotated[float, Field(gt=0, description="lower bound of that median's interval, milliseconds")]
    high_ms: Annotated[float, Field(gt=0, description="upper bound of that median's interval, milliseconds")]
    too_slow: Annotated[bool, Field(description="true if the whole interval is above the limit")]
    beside: NotRequired[
        Annotated[
            ReferenceComparison,
            Field(
                description="comparison with the reference of a relative limit; absent if the limit is in milliseconds"
            ),
        ]
    ]


class LatencyDecision(DecisionPlace):
    """The variants that are significantly over the latency limit."""

    decision: Annotated[str, Field(description="what was decided, with the limit")]
    chosen: Annotated[list[str], Field(description="names of the variants that are too slow")]
    rule: Annotated[
        Literal["whole interval above the limit", "recorded"], Field(description="why these variants are too slow")
    ]
    candidates: Annotated[list[LimitComparison], Field(description="every variant")]
    replayed: Annotated[bool, Field(description="true if the decision of an earlier run was replayed")]
    today: Annotated[list[str], Field(description="what this run's own measurement would choose")]


class DenseComparison(Record):
    """A sparse variant compared with the same network without zeros."""

    name: Annotated[str, Field(description="the variant with zeros")]
    dense: Annotated[str, Field(description="the variant without zeros")]
    ratio: Annotated[float, Field(gt=0, description="speed relative to the variant without zeros")]
    ratio_low: Annotated[float, Field(gt=0, description="lower bound of that ratio's interval")]
    ratio_high: Annotated[float, Field(gt=0, description="upper bound of that ratio's interval")]
    bytes_share: Annotated[
        float, Field(gt=0, description="size of its files divided by that of the variant without zeros")
    ]
    zipped_bytes: Annotated[int, Field(gt=0, description="size of its files, each compressed by zlib at level 9")]
    zipped_share: Annotated[
        float, Field(gt=0, description="that compressed size divided by that of the variant without zeros")
    ]
    buys: Annotated[
        bool, Field(description="true if its zeros pay off: it is significantly faster, or smaller and not slower")
    ]


class SparsityDecision(DecisionPlace):
    """The sparse variants that are neither faster nor smaller than the same network without zeros."""

    decision: Annotated[Literal["sparsity without speed-up"], Field(description="what was decided")]
    chosen: Annotated[
        list[str],
        Field(
            description="names of the sparse variants that are neither faster nor smaller than their dense counterpart"
        ),
    ]
    rule: Annotated[
        Literal["neither faster nor smaller than without them", "recorded"],
        Field(description="why they do not pay off"),
    ]
    candidates: Annotated[
        list[DenseComparison], Field(description="every sparse variant whose dense counterpart is inside the budget")
    ]
    replayed: Annotated[bool, Field(description="true if the decision of an earlier run was replayed")]
    today: Annotated[list[str], Field(description="what this run's own measurement would choose")]


Decision = WinnerDecision | LatencyDecision | SparsityDecision


def is_winner_decision(decision: Decision) -> TypeGuard[WinnerDecision]:
    """Return whether a decision chose a winner (of a target or overall), which is one variant and not a list."""
    return not isinstance(decision["chosen"], list)
