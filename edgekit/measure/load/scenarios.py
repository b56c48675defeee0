"""The scenarios of a load test, the minimums that MLPerf requires, and the result of one run.

`single_stream` sends each query when the one before has been answered. `server` sends queries at the times of a Poisson
process, however long the answers take. `offline` sends all samples at once. The queries are sent by LoadGen, MLPerf's
load generator. The names, the minimums and the definition of a latency follow the MLPerf Inference Rules
(https://github.com/mlcommons/inference_policies, "Scenarios"; Reddi et al., "MLPerf Inference Benchmark", 2019,
arXiv:1911.02549).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from edgekit.core.errors import ConfigError
from edgekit.device.measure.conditions import Conditions

Scenario = Literal["single_stream", "server", "offline"]
SCENARIOS: tuple[Scenario, ...] = get_args(Scenario)
P99_BOUND_MS = 10.0
"""LoadGen's default for the server scenario (`*.Server.target_latency` in its mlperf.conf)."""


@dataclass(frozen=True)
class LoadMinimum:
    """The duration and the number of queries below which a result is marked as short."""

    seconds: float
    queries: int


MLPERF_MINIMUMS: dict[Scenario, LoadMinimum] = {
    "single_stream": LoadMinimum(600.0, 100),
    "server": LoadMinimum(600.0, 100),
    "offline": LoadMinimum(600.0, 24_576),
}
"""MLPerf's requirements, from the mlperf.conf inside LoadGen 6.0.17.

For `offline`, which has a single query, `queries` is the number of its samples.
"""


@dataclass(frozen=True)
class Load:
    """One run of LoadGen.

    Without `rate_per_s`, `server` sends queries at half the rate that the model reaches in back-to-back
    calls.
    """

    scenario: Scenario
    seconds: float
    queries: int = 1
    rate_per_s: float | None = None
    p99_bound_ms: float = P99_BOUND_MS
    minimum: LoadMinimum | None = None
    confidence: float = 0.95
    seed: int = 0

    def __post_init__(self) -> None:
        if self.scenario not in SCENARIOS:
            raise ConfigError(f"scenario: got {self.scenario!r}; use one of {', '.join(SCENARIOS)}")
        for what, value in (("seconds", self.seconds), ("p99", self.p99_bound_ms), ("rate", self.rate_per_s)):
            if value is not None and not 0 < value < float("inf"):
                raise ConfigError(f"{what}: got {value:g}; use a finite number above 0")
        if self.queries < 1:
            raise ConfigError(f"queries: got {self.queries}; use a whole number, 1 or more")
        if self.rate_per_s is not None and self.scenario != "server":
            raise ConfigError(f"rate: got {self.rate_per_s:g} for {self.scenario}; only server has a rate")

    @property
    def required(self) -> LoadMinimum:
        """The minimum that applies to this load."""
        return self.minimum or MLPERF_MINIMUMS[self.scenario]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Load:
        minimum = fields["minimum"]
        return cls(**{**fields, "minimum": LoadMinimum(**minimum) if minimum else None})


@dataclass(frozen=True)
class Percentile:
    """A percentile of the latencies with its bootstrap interval; the bounds are None if there are too few queries."""

    value_ms: float
    low_ms: float | None
    high_ms: float | None


@dataclass(frozen=True)
class LoadResult:
    """The result of one run of LoadGen.

    A latency counts from the intended start of its query, which in `server` is the scheduled arrival. In `offline`,
    each sample has a latency, and all of them count from the start of the one query that holds all samples. These
    latencies include the time spent waiting for the preceding samples, so in `offline`, `throughput_per_s` and
    `service_p50_ms` are more informative.
    """

    scenario: Scenario
    seconds: float  # from the first query to the last answer
    queries: int
    rate_per_s: float | None  # the requested rate, server only
    throughput_per_s: float
    latency: dict[str, Percentile]  # p50, p90, p95, p99
    service_p50_ms: float  # median time to compute one answer, without waiting
    service_p99_ms: float
    errors: int
    first_error: str | None
    cpu_cores: float  # CPU seconds of the process per second of the run, including those of LoadGen
    peak_bytes: int | None  # largest resident memory during the run
    loadgen_bytes: int | None  # the part of `peak_bytes` that LoadGen uses for its list of queries
    p99_bound_ms: float | None  # server only
    meets: bool | None  # whether the p99 is within the bound and no query failed
    sure: bool | None  # whether LoadGen's test is 99 % confident that the p99 is within the bound; server only
    short: bool
    why_short: str
    seen: Conditions  # the state of the machine during the run
    disturbed: list[str]  # why the latencies may be noisy
    loadgen: dict[str, Any]  # figures from LoadGen's own log

    @property
    def error_rate(self) -> float:
        return self.errors / self.queries

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "error_rate": self.error_rate}

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> LoadResult:
        values = {name: value for name, value in fields.items() if name != "error_rate"}
        latency = {name: Percentile(**each) for name, each in fields["latency"].items()}
        return cls(**{**values, "latency": latency, "seen": Conditions(**fields["seen"])})
