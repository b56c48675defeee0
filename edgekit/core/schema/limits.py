"""The limits of the budget, and what a variant was held to: rows of result.json."""

from __future__ import annotations

from typing import Annotated, NotRequired

from pydantic import Field

from edgekit.core.schema.record import Record, Sha256
from edgekit.core.strict import Target


class RelativeLatency(Record):
    """A limit of the p50, beside that of a reference; `sha256` of a rival."""

    ratio: Annotated[float, Field(gt=0, le=1000, description="largest share of the reference's p50")]
    of: Annotated[str, Field(min_length=1, description="reference: a rival's file name, or baseline")]
    sha256: NotRequired[Annotated[Sha256, Field(description="of the rival's file; absent for the baseline")]]


class RelativeSize(Record):
    """A limit of the bytes, beside those of a reference; `bytes` of a rival."""

    ratio: Annotated[float, Field(gt=0, le=1000, description="largest share of the reference's bytes")]
    of: Annotated[str, Field(min_length=1, description="reference: a rival's file name, or baseline")]
    bytes: NotRequired[Annotated[int, Field(gt=0, description="size of the rival; absent for the baseline")]]


class TargetLimits(Record):
    """Limits of one target, each in place of the budget's own; null: no limit."""

    latency_p50_ms: NotRequired[
        Annotated[float | None, Field(gt=0, description="largest median of one call, milliseconds")]
    ]
    size_bytes: NotRequired[Annotated[int | None, Field(gt=0, description="largest size of the model's files")]]
    latency_p50: NotRequired[
        Annotated[RelativeLatency | None, Field(description="largest median beside a reference's")]
    ]
    size: NotRequired[Annotated[RelativeSize | None, Field(description="largest size beside a reference's")]]


class BudgetLimits(Record):
    """The budget: what a variant must meet, on validation and on the machine that decides."""

    accuracy_drop_pp: Annotated[float, Field(ge=0, description="largest drop below the baseline, percentage points")]
    accuracy_confidence: Annotated[
        float, Field(gt=0.5, lt=1, description="how sure it must be that the drop is no larger")
    ]
    latency_p50_ms: Annotated[
        float | None, Field(gt=0, description="largest median of one call, milliseconds; null: any")
    ]
    size_bytes: Annotated[int | None, Field(gt=0, description="largest size of the model's files; null: any")]
    latency_p50: NotRequired[
        Annotated[RelativeLatency, Field(description="largest median beside a reference's; absent: none")]
    ]
    size: NotRequired[Annotated[RelativeSize, Field(description="largest size beside a reference's; absent: none")]]
    targets: NotRequired[
        Annotated[
            dict[Target, TargetLimits], Field(description="limits of single targets, in place of these; absent: none")
        ]
    ]


class ReferenceComparison(Record):
    """A variant's median over that of a reference in the same rounds."""

    name: Annotated[
        str, Field(description="the reference: a rival, or the float variant of the baseline on the same target")
    ]
    limit: Annotated[float, Field(gt=0, description="largest ratio that the budget allows")]
    ratio: Annotated[float, Field(gt=0, description="how many times as long as the reference it takes")]
    ratio_low: Annotated[float, Field(gt=0, description="lower end of that ratio's interval")]
    ratio_high: Annotated[float, Field(gt=0, description="upper end of that ratio's interval")]


class AppliedLimits(Record):
    """What one variant was held to, where the budget has relative limits or limits of single targets."""

    latency_p50_ms: Annotated[
        float | None, Field(gt=0, description="largest median of one call, milliseconds; null: any")
    ]
    size_bytes: Annotated[int | None, Field(gt=0, description="largest size of the model's files; null: any")]
    beside: NotRequired[
        Annotated[
            ReferenceComparison,
            Field(
                description="its median beside a reference's; absent where its limit is not relative, "
                "or nobody timed both"
            ),
        ]
    ]
