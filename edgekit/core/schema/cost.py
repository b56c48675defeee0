"""What a call costs, what the walk has cost, and when the one pays for the other: rows of result.json."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired

from pydantic import Field

from edgekit.core.schema.record import Record

CostUnit = Literal["CPU-seconds", "joules", "money"]

BreakEvenAnswer = Literal["after", "perhaps never", "never", "unknown"]


class Prices(Record):
    """What the config says of money."""

    per_cpu_hour: Annotated[float | None, Field(ge=0, description="price of one hour of one core; null: not given")]
    per_kwh: Annotated[float | None, Field(ge=0, description="price of a kilowatt-hour; null: not given")]
    currency: Annotated[str, Field(description="what prices and money are in")]


class Estimate(Record):
    """A figure and the ends of its interval."""

    value: Annotated[float, Field(description="the mean over the openings")]
    low: Annotated[float, Field(description="lower end of its interval")]
    high: Annotated[float, Field(description="upper end of its interval")]


class CallCost(Record):
    """What one call of a variant costs on this machine, and what it saves against one of the baseline."""

    name: Annotated[str, Field(description="the variant")]
    cpu_s: Annotated[Estimate, Field(description="processor time of all threads, seconds")]
    saved_cpu_s: Annotated[
        Estimate | None, Field(description="seconds below the baseline's; null for the baseline itself")
    ]
    joules: Annotated[Estimate | None, Field(description="energy without what the idle machine takes; null: not known")]
    saved_joules: Annotated[
        Estimate | None, Field(description="joules below the baseline's; null: not known, or itself")
    ]
    joules_with_idle: Annotated[
        float | None, Field(description="energy with what the idle machine takes; null: not known")
    ]
    money: NotRequired[Annotated[Estimate, Field(description="at the prices of the config; absent: not known")]]
    saved_money: NotRequired[
        Annotated[Estimate, Field(description="money below the baseline's; absent: not known, or itself")]
    ]


class EnergyMeasurement(Record):
    """How energy was measured."""

    source: Annotated[str, Field(description="what showed it, and what that sees")]
    idle_watts: Annotated[Estimate, Field(description="what the idle machine takes, between blocks of calls")]
    rounds: Annotated[int, Field(gt=0, description="blocks of each variant")]
    seconds: Annotated[float, Field(gt=0, description="length of a block")]


class CallCosts(Record):
    """What was measured; `energy` null: for the reason in `energy_unknown`, which is empty otherwise."""

    confidence: Annotated[float, Field(gt=0.5, lt=1, description="of every interval")]
    protocol: Annotated[str, Field(description="how a call was measured, in words")]
    calls: Annotated[list[CallCost], Field(min_length=1, description="the baseline first, then every variant")]
    energy: Annotated[EnergyMeasurement | None, Field(description="how energy was measured; null: it was not")]
    energy_unknown: Annotated[str, Field(description="why energy is not known; empty where it is")]


class RunCost(Record):
    """What the run's stages have taken: training, searching, converting, measuring."""

    cpu_s: Annotated[
        float | None, Field(ge=0, description="processor time of all sealed stages, seconds; null: not known")
    ]
    unknown: Annotated[list[str], Field(description="stages that did not record it")]
    joules: Annotated[Estimate | None, Field(description="estimated from the processor time; null: not known")]
    money: Annotated[Estimate | None, Field(description="at the prices of the config; null: not known")]
    notes: Annotated[list[str], Field(description="what to know of these figures, in words")]


class BreakEven(Record):
    """How many calls of a variant save what the walk has cost, in one unit."""

    name: Annotated[str, Field(description="a variant that ships")]
    unit: Annotated[Literal["CPU-seconds", "joules", "money"], Field(description="what is counted")]
    walk: Annotated[float | None, Field(ge=0, description="what the walk has cost; null: not known")]
    saved: Annotated[Estimate | None, Field(description="what each call saves against the baseline; null: not known")]
    answer: Annotated[
        Literal["after", "perhaps never", "never", "unknown"],
        Field(description="perhaps never: the interval of what a call saves holds zero; never: it lies below zero"),
    ]
    calls: Annotated[
        float | None, Field(ge=0, description="calls that save what the walk has cost; null: there are none")
    ]
    calls_low: Annotated[float | None, Field(ge=0, description="the fewest that may; null: there are none")]
    calls_high: Annotated[
        float | None, Field(ge=0, description="the most that may be needed; null: there is no such number")
    ]
    text: Annotated[str, Field(description="the answer in words")]


class Cost(CallCosts):
    """What a call costs by variant, what the walk has cost, and after how many calls it was worth it."""

    prices: Annotated[Prices | None, Field(description="what the config says of money; null: nothing")]
    walk: Annotated[RunCost, Field(description="what the run has cost so far")]
    break_even: Annotated[list[BreakEven], Field(description="for each variant that ships; empty where none does")]
