"""Where and how latencies were taken: rows of result.json."""

from __future__ import annotations

from typing import NotRequired, TypedDict


class Seen(TypedDict):
    """What went on beside the measurement, from before its first call to after its last; null: not shown here."""

    seconds: float
    others_share: float | None
    steal_share: float | None
    preempted_per_s: float | None
    quota_stops: int | None
    load_before: float | None
    load_after: float | None
    governor: str | None
    clock_mhz: float | None
    clock_change: float | None
    throttled: bool | None
    temperature_before_c: float | None
    temperature_after_c: float | None
    pace_ms: float
    pace_change: float
    noise: float | None


class Machine(TypedDict):
    """Where a latency was taken: `runner.measure.bench.machine`."""

    host: str
    cpu: str
    cores: int
    machine: str
    system: str
    python: str
    numpy: str


class Disturbances(TypedDict):
    """What else went on there: `runner.measure.conditions.to_record`."""

    governor: str | None
    emulator: str | None
    seen: Seen
    disturbed: list[str]


class Conditions(Machine, Disturbances):
    """Where and how the latencies of this result were taken."""

    threads: int
    calls_per_round: int
    warmup_per_round: int
    interpreters: dict[str, str]
    protocol: str
    stayed_open: NotRequired[list[str]]
