"""The accuracy of each class: records of result.json."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from edgekit.core.schema.record import Count, Record


class GroupAnswers(Record):
    """The answers of one network to the samples of one group."""

    variant: Annotated[str, Field(description="name of the variant, or baseline-eager")]
    score: Annotated[
        float | None, Field(description="the score that the table names; null: no sample to compute it from")
    ]
    found: Annotated[
        Count | None,
        Field(description="samples of the group that the network assigns to it; null if groups are ranges of values"),
    ]
    false: Annotated[
        Count | None,
        Field(
            description="samples of other groups that the network assigns to it; null if groups are ranges of values"
        ),
    ]


class GroupRow(Record):
    """One class, label, kind of sample or range of values."""

    name: Annotated[str, Field(description="the class, the label, the kind, or the value with its range")]
    samples: Annotated[Count, Field(description="samples of the split that belong to the group")]
    answers: Annotated[
        list[GroupAnswers], Field(min_length=1, description="answers of the baseline first, then of each variant")
    ]


class ByClass(Record):
    """The accuracy by class, for the baseline and the variants that ship.

    If there are many classes, only the worst are listed.
    """

    split: Annotated[Literal["validation"], Field(description="the split whose samples these are")]
    group: Annotated[str, Field(description="what the answers are broken down by, in words")]
    score: Annotated[str, Field(description="what a score is, in words: recall, F1, or the mean absolute error")]
    samples: Annotated[int, Field(gt=0, description="samples of the split")]
    variants: Annotated[
        list[str],
        Field(
            min_length=1,
            description="the baseline, then the variants that ship, the overall winner first; if none ships, then the "
            "nearest miss",
        ),
    ]
    groups_in_all: Annotated[int, Field(gt=0, description="number of groups, including those that are not listed")]
    groups: Annotated[
        list[GroupRow],
        Field(
            min_length=1,
            max_length=30,
            description="all groups in the order of the classes or, if there are too many, the worst ones first",
        ),
    ]
    lost: Annotated[
        dict[str, Count],
        Field(
            description="by variant: samples that the baseline answers correctly and the variant does not; a value "
            "is correct within a tenth of the standard deviation, and an anomaly is one that scores above the "
            "threshold that 1 % of the normal samples exceed"
        ),
    ]
    gained: Annotated[
        dict[str, Count],
        Field(description="by variant: samples that the variant answers correctly and the baseline does not"),
    ]


class Confusion(Record):
    """Confusion matrices, one for each variant.

    `rest` is the number of classes that are not listed in `classes`. They share one row and one column of `counts`.
    `among_the_rest` is the number of samples of such a class that were mistaken for another such class, by variant.
    """

    classes: list[str]
    rest: int
    counts: dict[str, list[list[int]]]
    among_the_rest: dict[str, int]


class LostSample(Record):
    """A sample that the baseline answers correctly and a variant does not. `place` is its index in the split."""

    place: int
    label: str
    baseline: str
    variant: str


class LostSamples(Record):
    """The samples that `variant` lost and that the report shows. `variant` is None if nothing is lost.

    `in_all` is the number of lost samples, shown or not, and `right_means` says when an answer counts as correct.
    """

    variant: str | None
    in_all: int
    right_means: str
    samples: list[LostSample]


class ShownLostSamples(LostSamples):
    """Lost samples with the kind of the data."""

    kind: str
