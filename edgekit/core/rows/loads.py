"""Loads and the rates that were held: rows of result.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NotRequired, TypedDict

from edgekit.core.rows.conditions import Seen


class LoadRun(TypedDict):
    """One run of LoadGen. A latency runs from the intended start: in `server` from the scheduled arrival."""

    name: str
    scenario: Literal["single_stream", "server", "offline"]
    seconds: float
    queries: int
    rate_per_s: float | None
    throughput_per_s: float
    p50_ms: float
    p90_ms: float
    p95_ms: float
    p99_ms: float
    p50_low_ms: float | None
    p50_high_ms: float | None
    p90_low_ms: float | None
    p90_high_ms: float | None
    p95_low_ms: float | None
    p95_high_ms: float | None
    p99_low_ms: float | None
    p99_high_ms: float | None
    service_p50_ms: float
    service_p99_ms: float
    errors: int
    error_rate: float
    first_error: str | None
    cpu_cores: float
    peak_bytes: int | None
    loadgen_bytes: int | None
    meets: bool | None
    sure: bool | None
    short: bool
    why_short: str
    seen: Seen
    disturbed: list[str]


class LoadTrial(TypedDict):
    """One run of the server scenario in the search for the highest rate."""

    rate_per_s: float
    p99_ms: float
    service_p99_ms: float
    queries: int
    meets: bool
    reason: Literal["search", "again", "confirm"]
    short: bool
    why_short: str
    seen: Seen
    disturbed: list[str]


class LoadRate(TypedDict):
    """The highest rate whose p99 stays within the bound."""

    name: str
    rate_per_s: float | None
    why: str
    short: bool
    why_short: str
    disturbed: list[str]
    trials: list[LoadTrial]


class LoadFailed(TypedDict):
    """A load that came to nothing."""

    name: str
    reason: str


class Loads(TypedDict):
    """How the winners and the baseline fare under load. It decides nothing."""

    seconds: float
    p99_bound_ms: float
    loadgen: str | None
    runs: list[LoadRun]
    rates: list[LoadRate]
    failed: list[LoadFailed]
    skipped: NotRequired[str | None]


def ends_ms(row: Mapping[str, Any], rank: int) -> tuple[float, float | None, float | None]:
    """A percentile of a run and the ends of its interval, which are None where queries are too few."""
    return row[f"p{rank}_ms"], row[f"p{rank}_low_ms"], row[f"p{rank}_high_ms"]
