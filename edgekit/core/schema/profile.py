"""Rows of the profile: ways to run the network, operators, layers, one session, and what follows from them."""

from __future__ import annotations

from typing import NotRequired

from edgekit.core.schema.record import Record


class RuntimeTime(Record):
    """A way to run the network as it is; one that fails has a `reason` in place of figures."""

    way: str
    reason: NotRequired[str]
    bytes: NotRequired[int | None]
    p50_ms: NotRequired[float]
    low_ms: NotRequired[float]
    high_ms: NotRequired[float]
    ratio: NotRequired[float]
    ratio_low: NotRequired[float]
    ratio_high: NotRequired[float]


class OperatorTime(Record):
    """An executed operator by its unique name, and its ms a call, as the profiler of an interpreter tells them."""

    operator: str
    name: str
    self_ms: float


class Operator(Record):
    """An operator: calls and own time for one call of the network, and its share of all."""

    operator: str
    calls: float
    self_ms: float
    share: float
    dispatched: NotRequired[float]


class LayerTime(Record):
    """A layer under the roof; `intensity` and `bound` are None where nobody counts bytes."""

    layer: str
    kind: str
    macs: int
    bytes: int
    intensity: float | None
    ms: float
    least_ms: float
    gmacs_per_s: float
    roof_gmacs_per_s: float
    roof_share: float
    bound: str | None


class StampOverhead(Record):
    """What a call with stamps takes of one without, with its interval."""

    ratio: float
    low: float
    high: float


class SessionTime(Record):
    """One process from its start to its last answer; `covered`: the share of it that the parts explain."""

    calls: int
    calls_covered: float
    covered: float
    parts_ms: dict[str, float]
    whole_ms: float
    stamped: NotRequired[StampOverhead]


class ThreadGain(Record):
    """How many times faster a call is with `threads`, with the interval."""

    threads: int
    speedup: float
    speedup_low: float
    speedup_high: float


class NextStep(Record):
    """Something to do next, the predicted speed-up of a whole call, and the bounds that it lifts."""

    title: str
    where: str
    speedup: float
    why: str
    against: tuple[str, ...]


class ExecutionFields(Record):
    """`measure.forecast.Execution` as plain fields."""

    measured_ms: float
    compute_ms: float
    int8_compute_ms: float
    memory_ms: float


class RuntimeForecast(Record):
    """How many times faster than the baseline a runtime is, and what its time is made of."""

    ratio: float
    execution: ExecutionFields


class Forecast(Record):
    """By runtime, and what one call costs."""

    executions: dict[str, RuntimeForecast]
    costs: dict[str, float]


class PredictedSpeedup(Record):
    """What was predicted of a variant, and what it achieved: speed-ups over the baseline, and their quotient."""

    name: str
    model: str
    precision: str
    target: str
    predicted: float
    achieved: float
    achieved_low: float
    achieved_high: float
    share: float


class Diagnosis(Record):
    """What the network is bound by, in shares of a call with its floors, and what to do next."""

    bound: str
    shares: dict[str, float]
    floors_ms: dict[str, float]
    steps: list[NextStep]
    text: str
