"""The cost of a call, the cost of the run, and the number of calls after which it pays off: records of result.json."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired

from pydantic import Field

from edgekit.core.schema.record import Record

CostUnit = Literal["CPU-seconds", "joules", "money"]

BreakEvenAnswer = Literal["after", "perhaps never", "never", "unknown"]


class Prices(Record):
    """The prices of the config."""

    per_cpu_hour: Annotated[
        float | None, Field(ge=0, description="price of one hour of one core; null: not configured")
    ]
    per_kwh: Annotated[float | None, Field(ge=0, description="price of a kilowatt-hour; null: not configured")]
    currency: Annotated[str, Field(description="currency of prices and costs")]


class Estimate(Record):
    """A figure and the bounds of its confidence interval."""

    value: Annotated[float, Field(description="the mean over the openings")]
    low: Annotated[float, Field(description="lower bound of its interval")]
    high: Annotated[float, Field(description="upper bound of its interval")]


class CallCost(Record):
    """The cost of one call of a variant on this machine, and the saving compared with a call of the baseline."""

    name: Annotated[str, Field(description="the variant")]
    cpu_s: Annotated[Estimate, Field(description="processor time of all threads, seconds")]
    saved_cpu_s: Annotated[
        Estimate | None,
        Field(description="seconds less than for a call of the baseline; null for the baseline itself"),
    ]
    joules: Annotated[Estimate | None, Field(description="energy without that of the idle machine; null: not known")]
    saved_joules: Annotated[
        Estimate | None,
        Field(description="joules less than a call of the baseline; null: not known, or the baseline itself"),
    ]
    joules_with_idle: Annotated[
        float | None, Field(description="energy with that of the idle machine; null: not known")
    ]
    money: NotRequired[Annotated[Estimate, Field(description="at the prices of the config; absent: not known")]]
    saved_money: NotRequired[
        Annotated[
            Estimate,
            Field(description="money less than a call of the baseline; absent: not known, or the baseline itself"),
        ]
    ]


class EnergyMeasurement(Record):
    """The method by which energy was measured."""

    source: Annotated[str, Field(description="the meter, and what it covers")]
    idle_watts: Annotated[Estimate, Field(description="power of the idle machine, between blocks of calls")]
    rounds: Annotated[int, Field(gt=0, description="blocks of each variant")]
    seconds: Annotated[float, Field(gt=0, description="length of a block")]


class CallCosts(Record):
    """The measured costs of calls. If `energy` is null, `energy_unknown` says why."""

    confidence: Annotated[float, Field(gt=0.5, lt=1, description="confidence of every interval")]
    protocol: Annotated[str, Field(description="how a call was measured, as text")]
    calls: Annotated[list[CallCost], Field(min_length=1, description="the baseline first, then every variant")]
    energy: Annotated[EnergyMeasurement | None, Field(description="how energy was measured; null: it was not")]
    energy_unknown: Annotated[str, Field(description="why energy is not known; empty if it is known")]


class RunCost(Record):
    """The cost of the run's stages: training, searching, converting and measuring."""

    cpu_s: Annotated[
        float | None, Field(ge=0, description="processor time of all sealed stages, seconds; null: not known")
    ]
    unknown: Annotated[list[str], Field(description="stages that did not record their processor time")]
    joules: Annotated[Estimate | None, Field(description="estimated from the processor time; null: not known")]
    money: Annotated[Estimate | None, Field(description="at the prices of the config; null: not known")]
    notes: Annotated[list[str], Field(description="notes on these figures")]


class BreakEven(Record):
    """The number of calls of a variant that save as much as the run has cost, in one unit."""

    name: Annotated[str, Field(description="a variant that ships")]
    unit: Annotated[Literal["CPU-seconds", "joules", "money"], Field(description="what is counted")]
    run: Annotated[float | None, Field(ge=0, description="what the run has cost; null: not known")]
    saved: Annotated[Estimate | None, Field(description="what each call saves against the baseline; null: not known")]
    answer: Annotated[
        Literal["after", "perhaps never", "never", "unknown"],
        Field(description="perhaps never: the interval of what a call saves contains 0; never: it is at or below 0"),
    ]
    calls: Annotated[
        float | None, Field(ge=0, description="calls that save what the run has cost; null: there is no such number")
    ]
    calls_low: Annotated[
        float | None, Field(ge=0, description="the fewest that may suffice; null: there is no such number")
    ]
    calls_high: Annotated[
        float | None, Field(ge=0, description="the most that may be needed; null: there is no such number")
    ]
    text: Annotated[str, Field(description="the answer as text")]


class Cost(CallCosts):
    """The cost of a call of each variant, the cost of the run, and the number of calls after which it has paid off."""

    prices: Annotated[Prices | None, Field(description="the prices of the config; null: not configured")]
    run: Annotated[RunCost, Field(description="what the run has cost so far")]
    break_even: Annotated[list[BreakEven], Field(description="one entry for each variant that ships")]
