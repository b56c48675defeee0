"""Records of the profile: runtimes, operators, layers, a session, the diagnosis, and the forecast."""

from __future__ import annotations

from typing import NotRequired

from edgekit.core.schema.record import Record


class RuntimeTime(Record):
    """The latency of the unchanged network with one runtime. If it failed, there is a `reason` instead of figures."""

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
    """An executed operator by its unique name, with the milliseconds per call that a profiler reports."""

    operator: str
    name: str
    self_ms: float


class Operator(Record):
    """An operator: calls and own time in one call of the network, and its share of the total."""

    operator: str
    calls: float
    self_ms: float
    share: float
    dispatched: NotRequired[float]


class LayerTime(Record):
    """A layer in the roofline model; `intensity` and `bound` are None if its bytes are not counted."""

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
    """The time of a call in which time stamps are taken, divided by that of one without them, with its interval."""

    ratio: float
    low: float
    high: float


class SessionTime(Record):
    """One process from its start to its last answer. `covered` is the share of its time that the parts add up to.

    `calls_covered` is the same share for the time between the starts of two successive calls.
    """

    calls: int
    calls_covered: float
    covered: float
    parts_ms: dict[str, float]
    whole_ms: float
    stamped: NotRequired[StampOverhead]


class ThreadGain(Record):
    """The speed-up of a call with this number of threads over a call with one, with the bounds of its interval."""

    threads: int
    speedup: float
    speedup_low: float
    speedup_high: float


class NextStep(Record):
    """A recommended step, the predicted speed-up of a whole call, and the bottlenecks that it relieves."""

    title: str
    where: str
    speedup: float
    why: str
    against: tuple[str, ...]


class ExecutionFields(Record):
    """The fields of `measure.forecast.Execution`."""

    measured_ms: float
    compute_ms: float
    int8_compute_ms: float
    memory_ms: float


class RuntimeForecast(Record):
    """The speed-up of a runtime over the baseline (`ratio`), and the parts of its time."""

    ratio: float
    execution: ExecutionFields


class Forecast(Record):
    """Forecasts by runtime, and the cost of one call."""

    executions: dict[str, RuntimeForecast]
    costs: dict[str, float]


class PredictedSpeedup(Record):
    """The speed-up over the baseline that was predicted for a variant, the one that it achieved, and their ratio."""

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
    """The bottleneck of the network (`bound`), the recommended steps, and a summary as text.

    `shares` is each cause's share of a call's time. `floors_ms` is the least time that this machine needs for the
    arithmetic, for moving the bytes, and for the operator calls.
    """

    bound: str
    shares: dict[str, float]
    floors_ms: dict[str, float]
    steps: list[NextStep]
    text: str
