"""The decisions that rest on a latency, as they stand in result.json, each with its evidence."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from edgekit.core.config import Strict
from edgekit.report.result.limits import BesideReference


class Candidate(Strict):
    """A variant that a decision was about, compared with the fastest of them by point estimate."""

    name: str = Field(description="the variant")
    bytes: int = Field(gt=0, description="size of the model's files")
    p50_ms: float = Field(gt=0, description="median, milliseconds")
    ratio: float = Field(gt=0, description="how many times the fastest's time it takes")
    ratio_low: float = Field(gt=0, description="lower end of that ratio's interval")
    ratio_high: float = Field(gt=0, description="upper end of that ratio's interval")
    in_the_tie: bool = Field(description="true where the interval does not establish that it is slower")


class Decided(Strict):
    """Where it was measured."""

    where: str | None = Field(None, description="class of devices that were asked; absent where this machine was")
    host: str | None = Field(None, description="the slowest of them; empty where nothing was sent to any")


class Choice(Decided):
    """Which variant won, by which rule, and what it was measured against."""

    decision: str = Field(description="what was decided: winner of a target, or over all targets")
    chosen: str | None = Field(description="name of the winner; null where none is inside the budget")
    rule: Literal[
        "fastest", "tie: fewest bytes", "tie: same bytes, first name", "none inside the budget", "recorded"
    ] = Field(description="why it won")
    candidates: list[Candidate] = Field(description="every variant inside the budget, the fastest first")
    replayed: bool = Field(description="true where the decision of an earlier run was followed")
    today: str | None = Field(description="what this run's measurement would choose by itself")


class AgainstLimit(Strict):
    """A variant's median against the limit of the budget."""

    name: str = Field(description="the variant")
    p50_ms: float = Field(gt=0, description="median over the rounds, milliseconds")
    low_ms: float = Field(gt=0, description="lower end of that median's interval, milliseconds")
    high_ms: float = Field(gt=0, description="upper end of that median's interval, milliseconds")
    too_slow: bool = Field(description="true where the whole interval is above the limit")
    beside: BesideReference | None = Field(
        None, description="the same beside the reference of a relative limit; absent where it is in milliseconds"
    )


class Limit(Decided):
    """Which variants are over the latency limit for sure."""

    decision: str = Field(description="what was decided, with the limit")
    chosen: list[str] = Field(description="names of the variants that are too slow")
    rule: Literal["whole interval above the limit", "recorded"] = Field(description="why they are")
    candidates: list[AgainstLimit] = Field(description="every variant")
    replayed: bool = Field(description="true where the decision of an earlier run was followed")
    today: list[str] = Field(description="what this run's measurement would choose by itself")


class AgainstDense(Strict):
    """A variant with zeros beside the same network without."""

    name: str = Field(description="the variant with zeros")
    dense: str = Field(description="the variant without")
    ratio: float = Field(gt=0, description="how many times as fast as the one without")
    ratio_low: float = Field(gt=0, description="lower end of that ratio's interval")
    ratio_high: float = Field(gt=0, description="upper end of that ratio's interval")
    bytes_share: float = Field(gt=0, description="size of its files as a share of those without zeros")
    zipped_bytes: int = Field(gt=0, description="size of its files, each compressed by zlib at level 9")
    zipped_share: float = Field(gt=0, description="that compressed size as a share of the one without zeros")
    buys: bool = Field(description="true where its zeros pay: it is faster for sure, or smaller and not slower")


class Zeros(Decided):
    """Which variants with zeros are neither faster nor smaller for them."""

    decision: Literal["sparsity without speed-up"] = Field(description="what was decided")
    chosen: list[str] = Field(
        description="names of the sparse variants that are neither faster nor smaller than their dense counterpart"
    )
    rule: Literal["neither faster nor smaller than without them", "recorded"] = Field(description="why they do not")
    candidates: list[AgainstDense] = Field(description="every sparse variant whose dense one is inside the budget")
    replayed: bool = Field(description="true where the decision of an earlier run was followed")
    today: list[str] = Field(description="what this run's measurement would choose by itself")
