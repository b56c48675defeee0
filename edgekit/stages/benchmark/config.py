"""Options of the benchmark stage."""

from __future__ import annotations

from pathlib import PurePath
from typing import Literal

from pydantic import Field, field_serializer, field_validator, model_validator

from edgekit.core.config import CLASS_NAME_PATTERN, TARGETS, Budget, StageConfig, StrictModel, Target
from edgekit.core.paths import PathText
from edgekit.core.tasks import Task
from edgekit.training.teachers import model_file
from edgekit.training.teachers.config import ModelFile
from edgekit.training.teachers.model_file import check_task

LIBRARIES = ("numpy", "torch", "matplotlib", *model_file.LIBRARIES)


class CostOptions(StrictModel):
    """Prices and the power meter. They do not affect any other result, so they are not part of the cache key."""

    per_cpu_hour: float | None = Field(None, ge=0, le=1e9, description="price of one hour of one core")
    per_kwh: float | None = Field(None, ge=0, le=1e9, description="price of a kilowatt-hour")
    currency: str = Field("", pattern=r"^.{0,12}$", description="currency of these prices, such as EUR")
    meter: PathText | None = Field(
        None, description="absolute path of a file with one number, which a power meter's program keeps up to date; "
        "without it, RAPL is used if this user may read it"
    )  # fmt: skip
    meter_unit: Literal["watts", "joules"] | None = Field(
        None, description="unit of that number: the current power in watts, or a count of joules that only grows"
    )
    energy_s: float = Field(
        0.5, ge=0, le=600, description="seconds of calls between two energy readings; 0: energy is not measured"
    )

    @model_validator(mode="after")
    def _agrees(self) -> CostOptions:
        if (self.meter is None) != (self.meter_unit is None):
            raise ValueError(f"meter is {self.meter!r} and meter_unit {self.meter_unit!r}; give both, or neither")
        if self.meter is not None and self.meter[0] not in "/~$":
            raise ValueError(f"meter: got {self.meter!r}; write an absolute path, such as /run/meter/watts")
        if (self.per_cpu_hour, self.per_kwh) != (None, None) and not self.currency.strip():
            raise ValueError("per_cpu_hour and per_kwh need a currency, such as currency: EUR")
        return self


class BenchmarkConfig(StageConfig):
    """Options of the benchmark stage: how long to measure, and how large a difference must be to count as faster.

    The calls of a variant follow one another within a round, so the processor's caches are warm. Variant A is faster
    than variant B if the confidence interval of B's p50 divided by A's lies completely above 1 + `tie_margin`. As long
    as noise leaves a winner or a gain unsettled, rounds of the variants in question are added, up to `most_rounds` and
    `most_minutes`. The result lists the comparisons that are still unsettled after these rounds.
    """

    budget: Budget = Field(default_factory=lambda: Budget.model_validate({}))
    targets: list[Target] = Field(default_factory=lambda: list(TARGETS))
    rounds: int = Field(
        10, ge=10, le=10_000, description="rounds of timing; each times every variant once, in rotating order"
    )
    most_rounds: int = Field(
        150,
        ge=10,
        le=10_000,
        description="largest number of rounds for variants whose comparison is still unsettled because of noise",
    )
    most_minutes: float = Field(
        20.0,
        gt=0,
        le=10_080,
        description="time limit of the rounds in minutes; ten rounds of each variant are timed in any case",
    )
    calls_per_round: int = Field(20, ge=5, le=100_000, description="timed calls of each variant in a round")
    warmup_per_round: int = Field(
        5, ge=1, le=10_000, description="untimed calls of each variant at the start of a round"
    )
    confidence: float = Field(
        0.99, ge=0.8, le=0.999, description="confidence level of the interval of a p50, or of a ratio of two p50s"
    )
    tie_margin: float = Field(
        0.1, ge=0.0, le=1.0, description="a ratio of p50s that differs from 1 by no more than this is a tie"
    )
    rivals: list[ModelFile] = Field(
        default_factory=list,
        description="reference models: files made by others that are compared with the winner in the same rounds",
    )
    load_s: float = Field(
        1.0, ge=0, le=3600, description="length of each LoadGen run of a winner in seconds; 0: no load test"
    )
    p99_bound_ms: float = Field(
        0.0,
        ge=0,
        le=600_000,
        description="limit of the p99 under load, milliseconds; 0: ten times the p50 of the budget, or 10 ms",
    )
    where: str = Field(
        "",
        pattern=f"^$|{CLASS_NAME_PATTERN}",
        description="class of devices in hosts.yaml whose latencies decide; empty: those of this machine",
    )
    hosts: PathText = Field("hosts.yaml", description="file that lists these devices, as for `edgekit fleet`")
    inference_threads: int = Field(1, ge=1, le=256, description="number of threads of each interpreter and of PyTorch")

    cost: CostOptions = Field(
        default_factory=lambda: CostOptions.model_validate({}),
        exclude=True,  # neither part of the cache key nor of the artifact
        description="prices, and the source of energy readings",
    )

    task: Task = "classification"

    @field_serializer("hosts")
    def _without_folders(self, hosts: str) -> str:
        return PurePath(hosts).name

    @field_validator("rivals")
    @classmethod
    def _unique_names(cls, rivals: list[ModelFile]) -> list[ModelFile]:
        names = [rival.name for rival in rivals]
        if duplicates := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(
                f"names {', '.join(duplicates)} twice; reference models are identified by their file names"
            )
        return rivals

    def check_consistency(self) -> None:
        """Raise ConfigError if there are reference models, but the task does not support model files."""
        if self.rivals:
            check_task("benchmark.rivals", self.task)
