"""Loads and the rates that were held: rows of result.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field

from edgekit.core.schema.conditions import SystemActivity
from edgekit.core.schema.record import Milliseconds, Record


class LoadRun(Record):
    """One run of LoadGen. A latency runs from the intended start: in `server` from the scheduled arrival."""

    name: Annotated[str, Field(description="the variant, or baseline-eager, baseline-unmodified")]
    scenario: Annotated[Literal["single_stream", "server", "offline"], Field(description="MLPerf's scenario")]
    seconds: Annotated[float, Field(gt=0, description="from the first query to the last answer")]
    queries: Annotated[int, Field(gt=0, description="answered; samples of the one query in offline")]
    rate_per_s: Annotated[float | None, Field(gt=0, description="Poisson rate that was asked for; null but in server")]
    throughput_per_s: Annotated[float, Field(gt=0, description="answers a second")]
    p50_ms: Annotated[
        Milliseconds, Field(description="median latency; in offline from the start of the one query, as all here")
    ]
    p90_ms: Annotated[Milliseconds, Field(description="90th percentile")]
    p95_ms: Annotated[Milliseconds, Field(description="95th percentile")]
    p99_ms: Annotated[Milliseconds, Field(description="99th percentile")]
    p50_low_ms: Annotated[
        Milliseconds | None, Field(description="lower end of its interval; null where queries are too few")
    ]
    p50_high_ms: Annotated[Milliseconds | None, Field(description="upper end")]
    p90_low_ms: Annotated[Milliseconds | None, Field(description="lower end")]
    p90_high_ms: Annotated[Milliseconds | None, Field(description="upper end")]
    p95_low_ms: Annotated[Milliseconds | None, Field(description="lower end")]
    p95_high_ms: Annotated[Milliseconds | None, Field(description="upper end")]
    p99_low_ms: Annotated[Milliseconds | None, Field(description="lower end")]
    p99_high_ms: Annotated[Milliseconds | None, Field(description="upper end")]
    service_p50_ms: Annotated[
        Milliseconds, Field(description="median from the actual start: what an answer itself takes")
    ]
    service_p99_ms: Annotated[Milliseconds, Field(description="99th percentile of the same")]
    errors: Annotated[int, Field(ge=0, description="queries that were answered with an error")]
    error_rate: Annotated[float, Field(ge=0, le=1, description="their share")]
    first_error: Annotated[str | None, Field(description="what the first of them said")]
    cpu_cores: Annotated[
        float, Field(ge=0, description="CPU seconds of the process over wall seconds, LoadGen's own included")
    ]
    peak_bytes: Annotated[int | None, Field(gt=0, description="largest resident memory of the process meanwhile")]
    loadgen_bytes: Annotated[
        int | None, Field(ge=0, description="of which LoadGen took so much for its list of queries")
    ]
    meets: Annotated[bool | None, Field(description="p99 within the bound and no error; null but in server")]
    sure: Annotated[
        bool | None, Field(description="the same at 99 % confidence, by LoadGen's early stopping; null likewise")
    ]
    short: Annotated[bool, Field(description="true where it rests on less than MLPerf asks for")]
    why_short: Annotated[str, Field(description="what is missing, in words")]
    seen: Annotated[SystemActivity, Field(description="what went on beside the run")]
    disturbed: Annotated[
        list[str], Field(description="why the latencies are not to be relied on; empty where nothing was seen")
    ]


class LoadTrial(Record):
    """One run of the server scenario in the search for the highest rate."""

    rate_per_s: Annotated[float, Field(gt=0, description="Poisson rate that was asked for")]
    p99_ms: Annotated[Milliseconds, Field(description="99th percentile of the latencies from the scheduled arrivals")]
    service_p99_ms: Annotated[
        Milliseconds, Field(description="the same from the actual start: what an answer itself takes")
    ]
    queries: Annotated[int, Field(gt=0, description="answered")]
    meets: Annotated[bool, Field(description="p99 within the bound and no error")]
    reason: Annotated[
        Literal["search", "again", "confirm"], Field(description="why it was made; again: after a failure")
    ]
    short: Annotated[bool, Field(description="true where it rests on less than MLPerf asks for")]
    why_short: Annotated[str, Field(description="what is missing, in words")]
    seen: Annotated[SystemActivity, Field(description="what went on beside the trial")]
    disturbed: Annotated[
        list[str], Field(description="why the latencies are not to be relied on; empty where nothing was seen")
    ]


class LoadRate(Record):
    """The highest rate whose p99 stays within the bound."""

    name: Annotated[str, Field(description="the variant, or baseline-eager, baseline-unmodified")]
    rate_per_s: Annotated[float | None, Field(gt=0, description="that was confirmed; null where none was")]
    why: Annotated[str, Field(description="how the search ended, in words")]
    short: Annotated[
        bool, Field(description="true where the trials that confirmed it rest on less than MLPerf asks for")
    ]
    why_short: Annotated[str, Field(description="what they lack, in words")]
    disturbed: Annotated[
        list[str],
        Field(description="how many trials were disturbed, and by what the first of them; empty where none was"),
    ]
    trials: Annotated[
        list[LoadTrial],
        Field(description="all of them, in their order; none where an answer alone takes longer than the bound"),
    ]


class FailedLoad(Record):
    """A load that came to nothing."""

    name: Annotated[str, Field(description="the variant, or baseline-eager, baseline-unmodified")]
    reason: Annotated[str, Field(min_length=1, description="what it was at and why it ended, in one line")]


class Loads(Record):
    """How the winners and the baseline fare under load. It decides nothing."""

    seconds: Annotated[
        float, Field(ge=0, description="asked for in each run and at least in each trial; 0: nothing was driven")
    ]
    p99_bound_ms: Annotated[float, Field(gt=0, description="what a p99 is held to")]
    loadgen: Annotated[str | None, Field(description="LoadGen's version; null where nothing was driven")]
    runs: Annotated[list[LoadRun], Field(description="each of the driven in each scenario")]
    rates: Annotated[list[LoadRate], Field(description="of the baseline and of the winner over all targets")]
    failed: Annotated[list[FailedLoad], Field(description="what could not be driven to the end")]
    skipped: NotRequired[
        Annotated[str | None, Field(description="why nothing was driven although it was asked for; null otherwise")]
    ]


def percentile_with_bounds(row: Mapping[str, Any], rank: int) -> tuple[float, float | None, float | None]:
    """A percentile of a run and the ends of its interval, which are None where queries are too few."""
    return row[f"p{rank}_ms"], row[f"p{rank}_low_ms"], row[f"p{rank}_high_ms"]
