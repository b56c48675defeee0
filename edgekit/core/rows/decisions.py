"""Decisions that rest on a latency: rows of result.json."""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict, TypeGuard

from edgekit.core.rows.shared import BesideReference


class Candidate(TypedDict):
    """A variant that a decision was about, compared with the fastest of them by point estimate."""

    name: str
    bytes: int
    p50_ms: float
    ratio: float
    ratio_low: float
    ratio_high: float
    in_the_tie: bool


class Decided(TypedDict):
    """Where it was measured: a class of devices and its slowest; absent: on this machine."""

    where: NotRequired[str]
    host: NotRequired[str]


class Choice(Decided):
    """Which variant won, by which rule, and what it was measured against."""

    decision: str
    chosen: str | None
    rule: Literal["fastest", "tie: fewest bytes", "tie: same bytes, first name", "none inside the budget", "recorded"]
    candidates: list[Candidate]
    replayed: bool
    today: str | None


class AgainstLimit(TypedDict):
    """A variant's median against the limit of the budget; `beside` the reference of a relative one."""

    name: str
    p50_ms: float
    low_ms: float
    high_ms: float
    too_slow: bool
    beside: NotRequired[BesideReference]


class Limit(Decided):
    """Which variants are over the latency limit for sure."""

    decision: str
    chosen: list[str]
    rule: Literal["whole interval above the limit", "recorded"]
    candidates: list[AgainstLimit]
    replayed: bool
    today: list[str]


class AgainstDense(TypedDict):
    """A variant with zeros beside the same network without."""

    name: str
    dense: str
    ratio: float
    ratio_low: float
    ratio_high: float
    bytes_share: float
    zipped_bytes: int
    zipped_share: float
    buys: bool


class Zeros(Decided):
    """Which variants with zeros are neither faster nor smaller for them."""

    decision: Literal["sparsity without speed-up"]
    chosen: list[str]
    rule: Literal["neither faster nor smaller than without them", "recorded"]
    candidates: list[AgainstDense]
    replayed: bool
    today: list[str]


Decision = Choice | Limit | Zeros


def is_choice(decision: Decision) -> TypeGuard[Choice]:
    """Whether it chose one variant, the winner of a target or over all, rather than a list of them."""
    return not isinstance(decision["chosen"], list)
