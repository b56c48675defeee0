"""The accuracy of each class: rows of result.json."""

from __future__ import annotations

from typing import Literal, TypedDict


class GroupAnswers(TypedDict):
    """What one network says of the samples of a group."""

    variant: str
    score: float | None
    found: int | None
    false: int | None


class GroupRow(TypedDict):
    """One class, label, kind of sample or range of values."""

    name: str
    samples: int
    answers: list[GroupAnswers]


class ByClass(TypedDict):
    """The accuracy class by class, of the baseline and of the variants that ship; of many classes the worst."""

    split: Literal["validation"]
    group: str
    score: str
    samples: int
    variants: list[str]
    groups_in_all: int
    groups: list[GroupRow]
    lost: dict[str, int]
    gained: dict[str, int]


class Confusion(TypedDict):
    """Which class is taken for which; `counts` by variant, and how many of them among the classes not listed."""

    classes: list[str]
    rest: int
    counts: dict[str, list[list[int]]]
    among_the_rest: dict[str, int]


class LostSample(TypedDict):
    """A sample that the baseline answers rightly and a variant wrongly."""

    place: int
    label: str
    baseline: str
    variant: str


class Lost(TypedDict):
    """Of those samples the ones that are shown, and when an answer counts as right; no variant where none is there."""

    variant: str | None
    in_all: int
    right_means: str
    samples: list[LostSample]


class ShownLost(Lost):
    """The same with the kind of the data."""

    kind: str
