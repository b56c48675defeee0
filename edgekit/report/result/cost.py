"""What stands in result.json about costs: of a call, of the walk, and when the one pays for the other."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from edgekit.core.config import Strict


class Prices(Strict):
    """What the config says of money."""

    per_cpu_hour: float | None = Field(ge=0, description="price of one hour of one core; null: not given")
    per_kwh: float | None = Field(ge=0, description="price of a kilowatt-hour; null: not given")
    currency: str = Field(description="what prices and money are in")


class Estimate(Strict):
    """A figure and the ends of its interval."""

    value: float = Field(description="the mean over the openings")
    low: float = Field(description="lower end of its interval")
    high: float = Field(description="upper end of its interval")


class CallCost(Strict):
    """What one call of a variant costs on this machine, and what it saves against one of the baseline."""

    name: str = Field(description="the variant")
    cpu_s: Estimate = Field(description="processor time of all threads, seconds")
    saved_cpu_s: Estimate | None = Field(description="seconds below the baseline's; null for the baseline itself")
    joules: Estimate | None = Field(description="energy without what the idle machine takes; null: not known")
    saved_joules: Estimate | None = Field(description="joules below the baseline's; null: not known, or itself")
    joules_with_idle: float | None = Field(description="energy with what the idle machine takes; null: not known")
    money: Estimate | None = Field(None, description="at the prices of the config; absent: not known")
    saved_money: Estimate | None = Field(None, description="money below the baseline's; absent: not known, or itself")


class Energy(Strict):
    """How energy was measured."""

    source: str = Field(description="what showed it, and what that sees")
    idle_watts: Estimate = Field(description="what the idle machine takes, between blocks of calls")
    rounds: int = Field(gt=0, description="blocks of each variant")
    seconds: float = Field(gt=0, description="length of a block")


class WalkCost(Strict):
    """What the run's stages have taken: training, searching, converting, measuring."""

    cpu_s: float | None = Field(ge=0, description="processor time of all sealed stages, seconds; null: not known")
    unknown: list[str] = Field(description="stages that did not record it")
    joules: Estimate | None = Field(description="estimated from the processor time; null: not known")
    money: Estimate | None = Field(description="at the prices of the config; null: not known")
    notes: list[str] = Field(description="what to know of these figures, in words")


class BreakEven(Strict):
    """How many calls of a variant save what the walk has cost, in one unit."""

    name: str = Field(description="a variant that ships")
    unit: Literal["CPU-seconds", "joules", "money"] = Field(description="what is counted")
    walk: float | None = Field(ge=0, description="what the walk has cost; null: not known")
    saved: Estimate | None = Field(description="what each call saves against the baseline; null: not known")
    answer: Literal["after", "perhaps never", "never", "unknown"] = Field(
        description="perhaps never: the interval of what a call saves holds zero; never: it lies below zero"
    )
    calls: float | None = Field(ge=0, description="calls that save what the walk has cost; null: there are none")
    calls_low: float | None = Field(ge=0, description="the fewest that may; null: there are none")
    calls_high: float | None = Field(ge=0, description="the most that may be needed; null: there is no such number")
    text: str = Field(description="the answer in words")


class Cost(Strict):
    """What a call costs by variant, what the walk has cost, and after how many calls it was worth it."""

    confidence: float = Field(gt=0.5, lt=1, description="of every interval")
    protocol: str = Field(description="how a call was measured, in words")
    calls: list[CallCost] = Field(min_length=1, description="the baseline first, then every variant")
    energy: Energy | None = Field(description="how energy was measured; null: it was not")
    energy_unknown: str = Field(description="why energy is not known; empty where it is")
    prices: Prices | None = Field(description="what the config says of money; null: nothing")
    walk: WalkCost = Field(description="what the run has cost so far")
    break_even: list[BreakEven] = Field(description="for each variant that ships; empty where none does")
