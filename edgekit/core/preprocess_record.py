"""What `edgekit init --model` measured with several ways to prepare the input, as its config records it."""

from __future__ import annotations

from pydantic import Field

from edgekit.core.strict import StrictModel


class TriedPreprocess(StrictModel):
    """The accuracy with one way to prepare the input."""

    input: str = Field(description="the way in words")
    accuracy: float = Field(ge=0, le=1, description="accuracy on the samples")
    behind_pp: list[float] = Field(
        min_length=2,
        max_length=2,
        description="how much less accurate than the chosen way, percentage points: two bounds of 95 % confidence each",
    )


class PreprocessRecord(StrictModel):
    """All ways that were tried on the same samples of train, the chosen one first."""

    date: str = Field(description="day of the measurement")
    samples: int = Field(ge=1, description="samples of train")
    metric: str = Field(description="what accuracy is")
    left_out: int = Field(0, ge=0, description="further ways that were tried and are not listed")
    tried: list[TriedPreprocess] = Field(min_length=1, description="the chosen way first")
