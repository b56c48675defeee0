"""The accuracy of each class: rows of result.json."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from edgekit.core.schema.record import Count, Record


class GroupAnswers(Record):
    """What one network says of the samples of a group."""

    variant: Annotated[str, Field(description="name of the variant, or baseline-eager")]
    score: Annotated[
        float | None, Field(description="the figure that `score` of the table names; null: no sample to tell by")
    ]
    found: Annotated[Count | None, Field(description="samples of the group that are answered as it; null for values")]
    false: Annotated[
        Count | None, Field(description="samples of other groups that are answered as it; null for values")
    ]


class GroupRow(Record):
    """One class, label, kind of sample or range of values."""

    name: Annotated[str, Field(description="the class, the label, the kind, or the value with its range")]
    samples: Annotated[Count, Field(description="samples of the split that belong to it")]
    answers: Annotated[
        list[GroupAnswers], Field(min_length=1, description="by the baseline first, then by each variant")
    ]


class ByClass(Record):
    """The accuracy class by class, of the baseline and of the variants that ship; of many classes the worst."""

    split: Annotated[Literal["validation"], Field(description="the split whose samples these are")]
    group: Annotated[str, Field(description="what the answers are broken down by, in words")]
    score: Annotated[str, Field(description="what a score is, in words: recall, F1, or the mean absolute error")]
    samples: Annotated[int, Field(gt=0, description="samples of the split")]
    variants: Annotated[
        list[str],
        Field(
            min_length=1,
            description="the baseline; the variants that ship, the winner over all first, or the nearest miss",
        ),
    ]
    groups_in_all: Annotated[
        int, Field(gt=0, description="how many there are; where more than listed, the worst are listed")
    ]
    groups: Annotated[
        list[GroupRow], Field(min_length=1, max_length=30, description="in their order, or the worst first")
    ]
    lost: Annotated[
        dict[str, Count],
        Field(
            description="by variant: samples that the baseline answers rightly and this one wrongly; values are right "
            "within a tenth of their standard deviation, anomalies by a threshold with 1 % false alarms"
        ),
    ]
    gained: Annotated[dict[str, Count], Field(description="by variant: samples for which it is the other way round")]


class Confusion(Record):
    """Which class is taken for which; `counts` by variant, and how many of them among the classes not listed."""

    classes: list[str]
    rest: int
    counts: dict[str, list[list[int]]]
    among_the_rest: dict[str, int]


class LostSample(Record):
    """A sample that the baseline answers rightly and a variant wrongly."""

    place: int
    label: str
    baseline: str
    variant: str


class LostSamples(Record):
    """Of those samples the ones that are shown, and when an answer counts as right; no variant where none is there."""

    variant: str | None
    in_all: int
    right_means: str
    samples: list[LostSample]


class ShownLostSamples(LostSamples):
    """The same with the kind of the data."""

    kind: str
