"""Decisions that rest on a latency: rows of result.json."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired, TypeGuard

from pydantic import Field

from edgekit.core.schema.limits import ReferenceComparison
from edgekit.core.schema.record import Record


class DecisionCandidate(Record):
    """A variant that a decision was about, compared with the fastest of them by point estimate."""

    name: Annotated[str, Field(description="the variant")]
    bytes: Annotated[int, Field(gt=0, description="size of the model's files")]
    p50_ms: Annotated[float, Field(gt=0, description="median, milliseconds")]
    ratio: Annotated[float, Field(gt=0, description="how many times the fastest's time it takes")]
    ratio_low: Annotated[float, Field(gt=0, description="lower end of that ratio's interval")]
    ratio_high: Annotated[float, Field(gt=0, description="upper end of that ratio's interval")]
    in_the_tie: Annotated[bool, Field(description="true where the interval does not establish that it is slower")]


class DecisionPlace(Record):
    """Where it was measured."""

    where: NotRequired[
        Annotated[str, Field(description="class of devices that were asked; absent where this machine was")]
    ]
    host: NotRequired[Annotated[str, Field(description="the slowest of them; empty where nothing was sent to any")]]


class WinnerDecision(DecisionPlace):
    """Which variant won, by which rule, and what it was measured against."""

    decision: Annotated[str, Field(description="what was decided: winner of a target, or over all targets")]
    chosen: Annotated[str | None, Field(description="name of the winner; null where none is inside the budget")]
    rule: Annotated[
        Literal["fastest", "tie: fewest bytes", "tie: same bytes, first name", "none inside the budget", "recorded"],
        Field(description="why it won"),
    ]
    candidates: Annotated[
        list[DecisionCandidate], Field(description="every variant inside the budget, the fastest first")
    ]
    replayed: Annotated[bool, Field(description="true where the decision of an earlier run was followed")]
    today: Annotated[str | None, Field(description="what this run's measurement would choose by itself")]


class LimitComparison(Record):
    """A variant's median against the limit of the budget."""

    name: Annotated[str, Field(description="the variant")]
    p50_ms: Annotated[float, Field(gt=0, description="median over the rounds, milliseconds")]
    low_ms: Annotated[float, Field(gt=0, description="lower end of that median's interval, milliseconds")]
    high_ms: Annotated[float, Field(gt=0, description="upper end of that median's interval, milliseconds")]
    too_slow: Annotated[bool, Field(description="true where the whole interval is above the limit")]
    beside: NotRequired[
        Annotated[
            ReferenceComparison,
            Field(description="the same beside the reference of a relative limit; absent where it is in milliseconds"),
        ]
    ]


class LatencyDecision(DecisionPlace):
    """Which variants are over the latency limit for sure."""

    decision: Annotated[str, Field(description="what was decided, with the limit")]
    chosen: Annotated[list[str], Field(description="names of the variants that are too slow")]
    rule: Annotated[Literal["whole interval above the limit", "recorded"], Field(description="why they are")]
    candidates: Annotated[list[LimitComparison], Field(description="every variant")]
    replayed: Annotated[bool, Field(description="true where the decision of an earlier run was followed")]
    today: Annotated[list[str], Field(description="what this run's measurement would choose by itself")]


class DenseComparison(Record):
    """A variant with zeros beside the same network without."""

    name: Annotated[str, Field(description="the variant with zeros")]
    dense: Annotated[str, Field(description="the variant without")]
    ratio: Annotated[float, Field(gt=0, description="how many times as fast as the one without")]
    ratio_low: Annotated[float, Field(gt=0, description="lower end of that ratio's interval")]
    ratio_high: Annotated[float, Field(gt=0, description="upper end of that ratio's interval")]
    bytes_share: Annotated[float, Field(gt=0, description="size of its files as a share of those without zeros")]
    zipped_bytes: Annotated[int, Field(gt=0, description="size of its files, each compressed by zlib at level 9")]
    zipped_share: Annotated[float, Field(gt=0, description="that compressed size as a share of the one without zeros")]
    buys: Annotated[
        bool, Field(description="true where its zeros pay: it is faster for sure, or smaller and not slower")
    ]


class SparsityDecision(DecisionPlace):
    """Which variants with zeros are neither faster nor smaller for them."""

    decision: Annotated[Literal["sparsity without speed-up"], Field(description="what was decided")]
    chosen: Annotated[
        list[str],
        Field(
            description="names of the sparse variants that are neither faster nor smaller than their dense counterpart"
        ),
    ]
    rule: Annotated[
        Literal["neither faster nor smaller than without them", "recorded"], Field(description="why they do not")
    ]
    candidates: Annotated[
        list[DenseComparison], Field(description="every sparse variant whose dense one is inside the budget")
    ]
    replayed: Annotated[bool, Field(description="true where the decision of an earlier run was followed")]
    today: Annotated[list[str], Field(description="what this run's measurement would choose by itself")]


Decision = WinnerDecision | LatencyDecision | SparsityDecision


def is_winner_decision(decision: Decision) -> TypeGuard[WinnerDecision]:
    """Whether it chose one variant, the winner of a target or over all, rather than a list of them."""
    return not isinstance(decision["chosen"], list)
