"""The limits that variants were held to, as they stand in result.json."""

from __future__ import annotations

from pydantic import Field

from edgekit.core.budget import RelativeLatency, RelativeSize, TargetLimits
from edgekit.core.config import Strict, Target


class BesideReference(Strict):
    """A variant's median over that of a reference in the same rounds."""

    name: str = Field(description="the reference: a rival, or the float variant of the baseline on the same target")
    limit: float = Field(gt=0, description="largest ratio that the budget allows")
    ratio: float = Field(gt=0, description="how many times as long as the reference it takes")
    ratio_low: float = Field(gt=0, description="lower end of that ratio's interval")
    ratio_high: float = Field(gt=0, description="upper end of that ratio's interval")


class Limits(Strict):
    """The budget: what a variant must meet, on validation and on the machine that decides."""

    accuracy_drop_pp: float = Field(ge=0, description="largest drop below the baseline, percentage points")
    accuracy_confidence: float = Field(gt=0.5, lt=1, description="how sure it must be that the drop is no larger")
    latency_p50_ms: float | None = Field(gt=0, description="largest median of one call, milliseconds; null: any")
    size_bytes: int | None = Field(gt=0, description="largest size of the model's files; null: any")
    latency_p50: RelativeLatency | None = Field(None, description="largest median beside a reference's; absent: none")
    size: RelativeSize | None = Field(None, description="largest size beside a reference's; absent: none")
    targets: dict[Target, TargetLimits] = Field(
        default_factory=dict, description="limits of single targets, in place of these; absent: none"
    )


class RowLimits(Strict):
    """What one variant was held to, where the budget has relative limits or limits of single targets."""

    latency_p50_ms: float | None = Field(gt=0, description="largest median of one call, milliseconds; null: any")
    size_bytes: int | None = Field(gt=0, description="largest size of the model's files; null: any")
    beside: BesideReference | None = Field(
        None,
        description="its median beside a reference's; absent where its limit is not relative, or nobody timed both",
    )
