"""What result.json says of the conditions of a measurement: the machine, and what else went on."""

from __future__ import annotations

from pydantic import Field

from edgekit.core.config import Strict


class Seen(Strict):
    """What went on beside the measurement, from before its first call to after its last; null: not shown here.

    Shares are of the time of all cores that the process could use.
    """

    seconds: float = Field(ge=0, description="how long it took")
    others_share: float | None = Field(ge=0, description="processor time taken by other processes")
    steal_share: float | None = Field(ge=0, description="processor time withheld by the hypervisor")
    preempted_per_s: float | None = Field(ge=0, description="times a second that the process was put aside for another")
    quota_stops: int | None = Field(ge=0, description="times that a cgroup's quota stopped the process")
    load_before: float | None = Field(ge=0, description="load average of one minute, at the start")
    load_after: float | None = Field(ge=0, description="load average of one minute, at the end")
    governor: str | None = Field(description="what sets the processor's clock")
    clock_mhz: float | None = Field(
        gt=0, description="clock of the fastest core, the median of the readings after the first"
    )
    clock_change: float | None = Field(ge=0, description="how far the clock's high values lie above the low ones")
    throttled: bool | None = Field(description="whether heat or low voltage held the processor back")
    temperature_before_c: float | None = Field(description="of the processor, at the start")
    temperature_after_c: float | None = Field(description="of the processor, at the end")
    pace_ms: float = Field(
        gt=0, description="time of a piece of work that is always the same, the median of its readings"
    )
    pace_change: float = Field(ge=0, description="how far its high values lie above the low ones")
    noise: float | None = Field(
        ge=0,
        description="spread of the openings' p50s, a share, the median over the variants; in a load, of the p50s of "
        "consecutive queries from their actual start, null in server and where these are too few",
    )


class Conditions(Strict):
    """Where and how the latencies of this result were taken."""

    host: str = Field(description="name of the machine")
    cpu: str = Field(description="name of its processor")
    cores: int = Field(gt=0, description="cores that the process could use")
    machine: str = Field(description="architecture")
    system: str = Field(description="operating system and its release")
    python: str = Field(description="version of Python")
    numpy: str = Field(description="version of numpy")
    threads: int = Field(gt=0, description="threads of every interpreter")
    calls_per_round: int = Field(gt=0, description="timed calls of a variant that follow one another")
    warmup_per_round: int = Field(ge=0, description="untimed calls before them")
    interpreters: dict[str, str] = Field(description="versions of what ran the variants, by name")
    governor: str | None = Field(description="what sets the processor's clock; null where the kernel does not say")
    emulator: str | None = Field(description="what played the processor; null on a real one")
    protocol: str = Field(description="rounds, calls and order, in words")
    seen: Seen = Field(description="what went on beside the measurement")
    disturbed: list[str] = Field(description="why the latencies are not to be relied on; empty where nothing was seen")
    stayed_open: list[str] = Field(
        default_factory=list, description="comparisons that rounds ended before they were settled, and by which limit"
    )
