"""The accuracy of each class: records of result.json."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from edgekit.core.schema.record import Count, Record


class GroupAnswers(Record):
    """How one network answers the samples of one group."""

    variant: Annotated[str, Field(description="name of the variant, or baseline-eager")]
    score: Annotated[
        float | None, Field(description="the score that the table names; null: no sample to compute it from")
    ]
    found: Annotated[Count | None, Field(description="samples of the group that are answered with it; null for values")]
    false: Annotated[
        Count | None, Field(description="samples of other groups that are answered with it; null for values")
    ]


class GroupRow(Record):
    """One class, label, kind of sample or range of values."""

    name: Annotated[str, Field(description="the class, the label, the kind, or the value with its range")]
    samples: Annotated[Count, Field(description="samples of the split that belong to it")]
    answers: Annotated[
        list[GroupAnswers], Field(min_length=1, description="by the baseline first, then by each variant")
    ]


class ByClass(Record):
    """The accuracy by class, for the baseline and the variants that ship.

    If there are many classes, the worst are listed.
    """

    split: Annotated[Literal["validation"], Field(description="the split whose samples these are")]
    group: Annotated[str, Field(description="what the answers are broken down by, in words")]
    score: Annotated[str, Field(description="what a score is, in words: recall, F1, or the mean absolute error")]
    samples: Annotated[int, Field(gt=0, description="samples of the split")]
    variants: Annotated[
        list[str],
        Field(
            min_length=1,
            description="the baseline and the variants that ship, the overall winner first, or the nearest miss",
        ),
    ]
    groups_in_all: Annotated[
        int, Field(gt=0, description="how many groups there are; if more than are listed, the worst are listed")
    ]
    groups: Annotated[
        list[GroupRow], Field(min_length=1, max_length=30, description="in their own order, or the worst first")
    ]
    lost: Annotated[
        dict[str, Count],
        Field(
            description="by variant: samples that the baseline answers correctly and the variant does not; values "
            "are correct within a tenth of their standard deviation, anomalies by a threshold with 1 % false alarms"
        ),
    ]
    gained: Annotated[
        dict[str, Count],
        Field(description="by variant: samples for which it is the other way round: only the variant is correct"),
    ]


class Confusion(Record):
    """Confusion matrices.

    `counts` are by variant, and `among_the_rest` counts confusions among the classes not listed.
    """

    classes: list[str]
    rest: int
    counts: dict[str, list[list[int]]]
    among_the_rest: dict[str, int]


class LostSample(Record):
    """A sample that the baseline answers correctly and a variant does not."""

    place: int
    label: str
    baseline: str
    variant: str


class LostSamples(Record):
    """The samples shown as lost, and when an answer counts as correct. `variant` is None if nothing is lost."""

    variant: str | None
    in_all: int
    right_means: str
    samples: list[LostSample]


class ShownLostSamples(LostSamples):
    """Lost samples with the kind of the data."""

    kind: str
