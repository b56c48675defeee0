"""Load tests and the rates that were sustained: records of result.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field

from edgekit.core.schema.conditions import SystemActivity
from edgekit.core.schema.record import Milliseconds, Record


class LoadRun(Record):
    """One run of LoadGen. Latencies count from the intended start, which in `server` is the scheduled arrival."""

    name: Annotated[str, Field(description="the variant, or baseline-eager, baseline-unmodified")]
    scenario: Annotated[Literal["single_stream", "server", "offline"], Field(description="MLPerf's scenario")]
    seconds: Annotated[float, Field(gt=0, description="from the first query to the last answer")]
    queries: Annotated[int, Field(gt=0, description="queries answered; in offline the samples of the one query")]
    rate_per_s: Annotated[float | None, Field(gt=0, description="requested Poisson rate; null except in server")]
    throughput_per_s: Annotated[float, Field(gt=0, description="answers per second")]
    p50_ms: Annotated[
        Milliseconds, Field(description="median latency; in offline all latencies run from the start of the one query")
    ]
    p90_ms: Annotated[Milliseconds, Field(description="90th percentile")]
    p95_ms: Annotated[Milliseconds, Field(description="95th percentile")]
    p99_ms: Annotated[Milliseconds, Field(description="99th percentile")]
    p50_low_ms: Annotated[
        Milliseconds | None, Field(description="lower bound of its interval; null if there are too few queries")
    ]
    p50_high_ms: Annotated[Milliseconds | None, Field(description="upper bound")]
    p90_low_ms: Annotated[Milliseconds | None, Field(description="lower bound")]
    p90_high_ms: Annotated[Milliseconds | None, Field(description="upper bound")]
    p95_low_ms: Annotated[Milliseconds | None, Field(description="lower bound")]
    p95_high_ms: Annotated[Milliseconds | None, Field(description="upper bound")]
    p99_low_ms: Annotated[Milliseconds | None, Field(description="lower bound")]
    p99_high_ms: Annotated[Milliseconds | None, Field(description="upper bound")]
    service_p50_ms: Annotated[
        Milliseconds, Field(description="median from the actual start: the time of the answer itself")
    ]
    service_p99_ms: Annotated[Milliseconds, Field(description="99th percentile of the same")]
    errors: Annotated[int, Field(ge=0, description="queries that were answered with an error")]
    error_rate: Annotated[float, Field(ge=0, le=1, description="share of the queries that were answered with an error")]
    first_error: Annotated[str | None, Field(description="message of the first error")]
    cpu_cores: Annotated[
        float, Field(ge=0, description="CPU seconds of the process over wall seconds, LoadGen's own included")
    ]
    peak_bytes: Annotated[int | None, Field(gt=0, description="largest resident memory of the process meanwhile")]
    loadgen_bytes: Annotated[
        int | None, Field(ge=0, description="the part of that memory that LoadGen used for its list of queries")
    ]
    meets: Annotated[
        bool | None, Field(description="true if p99 is within the bound and there was no error; null except in server")
    ]
    sure: Annotated[
        bool | None,
        Field(description="true if this holds at 99 % confidence, by LoadGen's early stopping; null except in server"),
    ]
    short: Annotated[bool, Field(description="true if it is shorter than MLPerf requires")]
    why_short: Annotated[str, Field(description="what is missing, as text")]
    seen: Annotated[SystemActivity, Field(description="system activity during the run")]
    disturbed: Annotated[
        list[str], Field(description="why the latencies are unreliable; empty if nothing disturbed them")
    ]


class LoadTrial(Record):
    """One run of the server scenario in the search for the highest rate."""

    rate_per_s: Annotated[float, Field(gt=0, description="requested Poisson rate")]
    p99_ms: Annotated[Milliseconds, Field(description="99th percentile of the latencies from the scheduled arrivals")]
    service_p99_ms: Annotated[
        Milliseconds, Field(description="the same from the actual start: the time of the answer itself")
    ]
    queries: Annotated[int, Field(gt=0, description="queries answered")]
    meets: Annotated[bool, Field(description="true if p99 is within the bound and there was no error")]
    reason: Annotated[
        Literal["search", "again", "confirm"],
        Field(description="why the trial was run; again: a repetition after a failed trial"),
    ]
    short: Annotated[bool, Field(description="true if it is shorter than MLPerf requires")]
    why_short: Annotated[str, Field(description="what is missing, as text")]
    seen: Annotated[SystemActivity, Field(description="system activity during the trial")]
    disturbed: Annotated[
        list[str], Field(description="why the latencies are unreliable; empty if nothing disturbed them")
    ]


class LoadRate(Record):
    """The highest rate whose p99 stays within the bound."""

    name: Annotated[str, Field(description="the variant, or baseline-eager, baseline-unmodified")]
    rate_per_s: Annotated[float | None, Field(gt=0, description="the confirmed rate; null if none was confirmed")]
    why: Annotated[str, Field(description="how the search ended, as text")]
    short: Annotated[bool, Field(description="true if the trials that confirmed it are shorter than MLPerf requires")]
    why_short: Annotated[str, Field(description="what these trials lack, as text")]
    disturbed: Annotated[
        list[str],
        Field(description="how many trials were noisy, and why the first of them was; empty if none was"),
    ]
    trials: Annotated[
        list[LoadTrial],
        Field(description="all trials in order; empty if a single answer takes longer than the bound"),
    ]


class FailedLoad(Record):
    """A load test that failed."""

    name: Annotated[str, Field(description="the variant, or baseline-eager, baseline-unmodified")]
    reason: Annotated[str, Field(min_length=1, description="what was under way and why it ended, in one line")]


class Loads(Record):
    """The behaviour of the winners and the baseline under load. No decision depends on it."""

    seconds: Annotated[
        float, Field(ge=0, description="requested duration of each run and minimum of each trial; 0: no load was run")
    ]
    p99_bound_ms: Annotated[float, Field(gt=0, description="limit for the p99")]
    loadgen: Annotated[str | None, Field(description="LoadGen's version; null if no load was run")]
    runs: Annotated[list[LoadRun], Field(description="each model in each scenario")]
    rates: Annotated[list[LoadRate], Field(description="rates of the baseline and of the overall winner")]
    failed: Annotated[list[FailedLoad], Field(description="loads that could not be completed")]
    skipped: NotRequired[
        Annotated[str | None, Field(description="why no load was run although it was requested; null otherwise")]
    ]


def percentile_with_bounds(row: Mapping[str, Any], rank: int) -> tuple[float, float | None, float | None]:
    """Return a percentile of a run and the bounds of its interval, which are None if there are too few queries."""
    return row[f"p{rank}_ms"], row[f"p{rank}_low_ms"], row[f"p{rank}_high_ms"]
