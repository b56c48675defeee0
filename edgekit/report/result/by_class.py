"""What stands in result.json about the accuracy of each class, label, kind or range of values."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from edgekit.core.config import Strict

Count = Annotated[int, Field(ge=0)]


class GroupAnswers(Strict):
    """What one network says of the samples of a group."""

    variant: str = Field(description="name of the variant, or baseline-eager")
    score: float | None = Field(description="the figure that `score` of the table names; null: no sample to tell by")
    found: Count | None = Field(description="samples of the group that are answered as it; null for values")
    false: Count | None = Field(description="samples of other groups that are answered as it; null for values")


class GroupRow(Strict):
    """One class, label, kind of sample or range of values."""

    name: str = Field(description="the class, the label, the kind, or the value with its range")
    samples: Count = Field(description="samples of the split that belong to it")
    answers: list[GroupAnswers] = Field(min_length=1, description="by the baseline first, then by each variant")


class ByClass(Strict):
    """The accuracy class by class, of the baseline and of the variants that ship; of many classes the worst."""

    split: Literal["validation"] = Field(description="the split whose samples these are")
    group: str = Field(description="what the answers are broken down by, in words")
    score: str = Field(description="what a score is, in words: recall, F1, or the mean absolute error")
    samples: int = Field(gt=0, description="samples of the split")
    variants: list[str] = Field(
        min_length=1, description="the baseline; the variants that ship, the winner over all first, or the nearest miss"
    )
    groups_in_all: int = Field(gt=0, description="how many there are; where more than listed, the worst are listed")
    groups: list[GroupRow] = Field(min_length=1, max_length=30, description="in their order, or the worst first")
    lost: dict[str, Count] = Field(
        description="by variant: samples that the baseline answers rightly and this one wrongly; values are right "
        "within a tenth of their standard deviation, anomalies by a threshold with 1 % false alarms"
    )
    gained: dict[str, Count] = Field(description="by variant: samples for which it is the other way round")
