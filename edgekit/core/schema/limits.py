"""The limits of the budget, and those that applied to a variant: records of result.json."""

from __future__ import annotations

from typing import Annotated, NotRequired

from pydantic import Field

from edgekit.core.schema.record import Record, Sha256
from edgekit.core.strict import Target


class RelativeLatency(Record):
    """A limit on p50 relative to that of a reference; `sha256` identifies a reference model."""

    ratio: Annotated[float, Field(gt=0, le=1000, description="largest p50 divided by the reference's")]
    of: Annotated[str, Field(min_length=1, description="the reference: file name of a reference model, or baseline")]
    sha256: NotRequired[Annotated[Sha256, Field(description="SHA-256 of the reference model; absent for the baseline")]]


class RelativeSize(Record):
    """A limit on the size in bytes, relative to the size of a reference; `bytes` is the size of a reference model."""

    ratio: Annotated[float, Field(gt=0, le=1000, description="largest size divided by the reference's")]
    of: Annotated[str, Field(min_length=1, description="the reference: file name of a reference model, or baseline")]
    bytes: NotRequired[Annotated[int, Field(gt=0, description="size of the reference model; absent for the baseline")]]


class TargetLimits(Record):
    """Limits of one target, each replacing the budget's own; null: no limit."""

    latency_p50_ms: NotRequired[
        Annotated[float | None, Field(gt=0, description="largest median of one call, milliseconds")]
    ]
    size_bytes: NotRequired[Annotated[int | None, Field(gt=0, description="largest size of the model's files")]]
    latency_p50: NotRequired[
        Annotated[RelativeLatency | None, Field(description="largest median relative to a reference")]
    ]
    size: NotRequired[Annotated[RelativeSize | None, Field(description="largest size relative to a reference")]]


class BudgetLimits(Record):
    """The budget: the limits that a variant must meet on validation and on the machine that decides."""

    accuracy_drop_pp: Annotated[float, Field(ge=0, description="largest drop below the baseline, percentage points")]
    accuracy_confidence: Annotated[
        float, Field(gt=0.5, lt=1, description="confidence with which the drop must be no larger")
    ]
    latency_p50_ms: Annotated[
        float | None, Field(gt=0, description="largest median of one call, milliseconds; null: no limit")
    ]
    size_bytes: Annotated[int | None, Field(gt=0, description="largest size of the model's files; null: no limit")]
    latency_p50: NotRequired[
        Annotated[RelativeLatency, Field(description="largest median relative to a reference; absent: no limit")]
    ]
    size: NotRequired[
        Annotated[RelativeSize, Field(description="largest size relative to a reference; absent: no limit")]
    ]
    targets: NotRequired[
        Annotated[
            dict[Target, TargetLimits], Field(description="limits of single targets, which replace these; absent: none")
        ]
    ]


class ReferenceComparison(Record):
    """A variant's median divided by that of a reference in the same rounds."""

    name: Annotated[
        str,
        Field(description="the reference: a reference model, or the float variant of the baseline on the same target"),
    ]
    limit: Annotated[float, Field(gt=0, description="largest ratio that the budget allows")]
    ratio: Annotated[float, Field(gt=0, description="its time divided by that of the reference")]
    ratio_low: Annotated[float, Field(gt=0, description="lower bound of that ratio's interval")]
    ratio_high: Annotated[float, Field(gt=0, description="upper bound of that ratio's interval")]


class AppliedLimits(Record):
    """The limits that applied to one variant, if the budget has relative limits or limits of single targets."""

    latency_p50_ms: Annotated[
        float | None, Field(gt=0, description="largest median of one call, milliseconds; null: no limit")
    ]
    size_bytes: Annotated[int | None, Field(gt=0, description="largest size of the model's files; null: no limit")]
    beside: NotRequired[
        Annotated[
            ReferenceComparison,
            Field(
                description="its median relative to a reference; absent if its limit is not relative, "
                "or if they were not timed together"
            ),
        ]
    ]
