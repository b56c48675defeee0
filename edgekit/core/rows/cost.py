"""What a call costs, what the walk has cost, and when the one pays for the other: rows of result.json."""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

Unit = Literal["CPU-seconds", "joules", "money"]
Answer = Literal["after", "perhaps never", "never", "unknown"]


class Prices(TypedDict):
    """What the config says of money; null: not given."""

    per_cpu_hour: float | None
    per_kwh: float | None
    currency: str


class Estimate(TypedDict):
    """A figure and the ends of its interval."""

    value: float
    low: float
    high: float


class CallCost(TypedDict):
    """What one call of a variant costs, and what it saves against one of the baseline; null: not known.

    `joules` are without what the machine takes when idle, `joules_with_idle` with it. `money` rests on the prices
    and is absent without any.
    """

    name: str
    cpu_s: Estimate
    saved_cpu_s: Estimate | None
    joules: Estimate | None
    saved_joules: Estimate | None
    joules_with_idle: float | None
    money: NotRequired[Estimate]
    saved_money: NotRequired[Estimate]


class Energy(TypedDict):
    """How energy was measured."""

    source: str
    idle_watts: Estimate
    rounds: int
    seconds: float


class CallCosts(TypedDict):
    """What was measured; `energy` null: for the reason in `energy_unknown`, which is empty otherwise."""

    confidence: float
    protocol: str
    calls: list[CallCost]
    energy: Energy | None
    energy_unknown: str


class WalkCost(TypedDict):
    """What the run's stages have taken in all; `unknown`: stages that did not record it, then the sum is null."""

    cpu_s: float | None
    unknown: list[str]
    joules: Estimate | None
    money: Estimate | None
    notes: list[str]


class BreakEven(TypedDict):
    """How many calls of a variant save what the walk has cost, in one unit; null: none do, or nobody knows."""

    name: str
    unit: Unit
    walk: float | None
    saved: Estimate | None
    answer: Answer
    calls: float | None
    calls_low: float | None
    calls_high: float | None
    text: str


class Cost(CallCosts):
    """What a call costs by variant, what the walk has cost, and after how many calls it was worth it."""

    prices: Prices | None
    walk: WalkCost
    break_even: list[BreakEven]
