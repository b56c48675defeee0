"""Options of the benchmark stage."""

from __future__ import annotations

from pathlib import PurePath
from typing import Literal

from pydantic import Field, field_serializer, field_validator, model_validator

from edgekit.core.config import CLASS_NAME_PATTERN, TARGETS, Budget, StageConfig, StrictModel, Target
from edgekit.core.tasks import Task
from edgekit.data.paths import PathText
from edgekit.training.teachers import model_file
from edgekit.training.teachers.config import ModelFile
from edgekit.training.teachers.model_file import check_task

LIBRARIES = ("numpy", "torch", "matplotlib", *model_file.LIBRARIES)


class Cost(StrictModel):
    """What a call may be charged with. Prices and meters shape no result, so none of this is part of a key."""

    per_cpu_hour: float | None = Field(None, ge=0, le=1e9, description="price of one hour of one core")
    per_kwh: float | None = Field(None, ge=0, le=1e9, description="price of a kilowatt-hour")
    currency: str = Field("", pattern=r"^.{0,12}$", description="what these prices are in, such as EUR")
    meter: PathText | None = Field(
        None, description="absolute path of a file that a power meter's program rewrites, a number in it; "
        "without it: RAPL, where this user may read it"
    )  # fmt: skip
    meter_unit: Literal["watts", "joules"] | None = Field(
        None, description="what that number is: watts now, or joules counted from any moment on"
    )
    energy_s: float = Field(
        0.5, ge=0, le=600, description="seconds of calls between two readings of energy; 0: energy is not measured"
    )

    @model_validator(mode="after")
    def _agrees(self) -> Cost:
        if (self.meter is None) != (self.meter_unit is None):
            raise ValueError(f"meter is {self.meter!r} and meter_unit {self.meter_unit!r}; give both, or neither")
        if self.meter is not None and self.meter[0] not in "/~$":
            raise ValueError(f"meter: got {self.meter!r}; write an absolute path, such as /run/meter/watts")
        if (self.per_cpu_hour, self.per_kwh) != (None, None) and not self.currency.strip():
            raise ValueError("per_cpu_hour and per_kwh need a currency, such as currency: EUR")
        return self


class BenchmarkConfig(StageConfig):
    """How long is measured, and what counts as faster.

    Calls of one variant follow one another within a round, so its caches are warm. A variant is faster than another
    where the interval of the ratio of their p50s lies wholly above 1 + `tie_margin`. While noise alone leaves a winner
    or a gain open, rounds of the variants in question are added, up to `most_rounds` and `most_minutes`. What is open
    then stays so, and the result says it.
    """

    budget: Budget = Field(default_factory=lambda: Budget.model_validate({}))
    targets: list[Target] = Field(default_factory=lambda: list(TARGETS))
    rounds: int = Field(
        10, ge=10, le=10_000, description="rounds of timing; each times every variant once, in rotating order"
    )
    most_rounds: int = Field(
        150, ge=10, le=10_000, description="most rounds of the variants whose comparison noise leaves open"
    )
    most_minutes: float = Field(
        20.0, gt=0, le=10_080, description="most minutes of rounds; ten rounds of each variant are timed in any case"
    )
    calls_per_round: int = Field(20, ge=5, le=100_000, description="timed calls of a variant in a round")
    warmup_per_round: int = Field(5, ge=1, le=10_000, description="untimed calls of a variant at the start of a round")
    confidence: float = Field(
        0.99, ge=0.8, le=0.999, description="confidence of the interval of a p50, or of a ratio of two"
    )
    tie_margin: float = Field(0.1, ge=0.0, le=1.0, description="distance from 1 within which a ratio of p50s is a tie")
    rivals: list[ModelFile] = Field(
        default_factory=list, description="model files made by others, compared with the winner in the same rounds"
    )
    load_s: float = Field(1.0, ge=0, le=3600, description="seconds of each LoadGen run of a winner; 0: no load test")
    p99_bound_ms: float = Field(
        0.0,
        ge=0,
        le=600_000,
        description="limit of the p99 under load, milliseconds; 0: ten times the p50 of the budget, or 10",
    )
    where: str = Field(
        "",
        pattern=f"^$|{CLASS_NAME_PATTERN}",
        description="class of devices whose latencies decide, as hosts.yaml names it; empty: this machine",
    )
    hosts: PathText = Field("hosts.yaml", description="file that lists these devices, as for `edgekit fleet`")
    inference_threads: int = Field(1, ge=1, le=256, description="threads of every interpreter, and of PyTorch")

    cost: Cost = Field(
        default_factory=lambda: Cost.model_validate({}),
        exclude=True,  # from the key and from what is sealed
        description="prices, and what shows energy",
    )

    task: Task = "classification"

    @field_serializer("hosts")
    def _without_folders(self, hosts: str) -> str:
        return PurePath(hosts).name

    @field_validator("rivals")
    @classmethod
    def _unique_names(cls, rivals: list[ModelFile]) -> list[ModelFile]:
        names = [rival.name for rival in rivals]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"names {', '.join(twice)} twice; tables tell rivals apart by the files' names")
        return rivals

    def check_consistency(self) -> None:
        """ConfigError for a rival that cannot be asked for what this task wants."""
        if self.rivals:
            check_task("benchmark.rivals", self.task)
