"""Rounds: how long they should take, why more are added, when that ends, and what stays open then."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from edgekit.core import progress
from edgekit.core.progress_state import duration
from edgekit.core.schema.variants import ModelFacts
from edgekit.device.measure import conditions
from edgekit.device.measure.bench import FRESH_CALLS, MIN_OPENINGS, opening_count, timed_openings
from edgekit.stages.benchmark.config import BenchmarkConfig
from edgekit.stages.benchmark.decide import Decision, decide, unresolved_speedups, unresolved_steps
from edgekit.stages.benchmark.timings import Timings
from edgekit.stages.benchmark.winners import ClassTimings, OpenComparison, too_close_to_call

TRIED_CALLS = 2
"""Timed before the rounds, to predict how long they take."""

Opener = Callable[[], Callable[[], object]]


class Measured(NamedTuple):
    """What the rounds led to; `stayed_open`: a line for each comparison that their end left open."""

    decision: Decision
    timings: Timings
    stayed_open: list[str]


def measured(
    rows: Sequence[ModelFacts],
    openers: Mapping[str, Opener],
    config: BenchmarkConfig,
    watch: conditions.ConditionsRecorder,
    recorded: dict[str, Any] | None,
    deciding: ClassTimings | None = None,
) -> Measured:
    """Time everything, then add rounds of what is still open until every winner and every gain is resolved, so that a
    quieter day gives the same decision.

    Added rounds time only the variants of open comparisons: what is surely slower cannot win any more. `most_rounds`
    and `most_minutes` end them too. What is open then is decided by what is known, and listed. Where the latencies of
    devices are `deciding`, these rounds resolve gains alone.
    """
    numbers = (config.rounds, config.most_rounds, config.calls_per_round, config.warmup_per_round)
    openings = opening_count(config.rounds)
    limit_s = 60 * config.most_minutes
    with progress.step("timing the variants", "opening", openings) as shown:
        progress.announce(expected_duration(openers, config))

        def on_opening(opened: int) -> None:
            shown.update(opened, of=0 if opened > shown.state.of else None)  # a short limit: nobody knows how many

        began, on_round = time.monotonic(), progress.call_both(watch.sample, on_opening)
        cpu_ms: dict[str, np.ndarray] = {}
        growth = timed_openings(openers, *numbers, on_round=on_round, limit_s=limit_s, cpu_ms=cpu_ms)
        samples_ms, opened = next(growth)
        timed = set(openers)
        while True:
            timings = Timings(samples_ms, opened, config.confidence, config.tie_margin, dict(cpu_ms))
            decision = decide(rows, timings, config.budget, config.targets, recorded, deciding)
            still_open = open_now(decision, config.tie_margin, winners=deciding is None)
            timed = {name for each in still_open if timed.issuperset(each.variants) for name in each.variants}
            if not timed:
                break
            more = f"timing {len(timed)} models, with more rounds: {len(still_open)} comparisons open"
            shown.update(opened, of=opened + openings, name=more)
            try:
                samples_ms, opened = growth.send(timed)
            except StopIteration:  # a limit
                break
        took_s = time.monotonic() - began
        done = max(map(len, samples_ms.values())) // config.calls_per_round
        open_words = [comparison.words for comparison in still_open]
        given_up = open_words and not timed  # what is open now includes a variant that had been surely slower
        ended = f"after {done} rounds, for a variant that was given up" if given_up else _ended_by(done, took_s, config)
        if open_words:
            are_open = "1 comparison is" if len(open_words) == 1 else f"{len(open_words)} comparisons are"
            progress.announce(f"Timing ended {ended}; {are_open} not settled, see the report.")
        elif done < config.rounds:
            progress.announce(f"Timing ended {ended}; every comparison is settled.")
    return Measured(decision, timings, [f"{words}; rounds ended {ended}" for words in open_words])


def open_now(decision: Decision, tie_margin: float, winners: bool = True) -> list[OpenComparison]:
    """What more rounds would settle: winners too close to call, and gains and speed-ups that are known too roughly."""
    return [
        *(too_close_to_call(decision.decisions, tie_margin) if winners else []),
        *unresolved_steps(decision.metrics["waterfall"], tie_margin),
        *unresolved_speedups(decision.metrics, tie_margin),
    ]


def expected_duration(openers: Mapping[str, Opener], config: BenchmarkConfig) -> str:
    """How long the rounds should take, from a few calls of each, and what makes them more or fewer."""
    opening_s, call_s = map(sum, zip(*map(_tried, openers.values()), strict=True))

    def seconds(openings: int, rounds: int) -> float:
        calls = rounds * (config.calls_per_round + config.warmup_per_round) + openings * FRESH_CALLS
        return openings * opening_s + calls * call_s

    planned_s, least_s = seconds(opening_count(config.rounds), config.rounds), seconds(MIN_OPENINGS, MIN_OPENINGS)
    return _planned(len(openers), planned_s, least_s, config)


def _planned(models: int, planned_s: float, least_s: float, config: BenchmarkConfig) -> str:
    """What the limit leaves of the plan; `least_s`: what is timed in any case."""
    limit_s = 60 * config.most_minutes
    limit = f"{duration(limit_s)} (benchmark.most_minutes)"
    if least_s > limit_s:
        least = f"Timing {models} models takes about {duration(least_s)} for the {MIN_OPENINGS} rounds that are needed"
        return f"{least}, which is longer than the limit of {limit}."
    planned = f"Timing {models} models in {config.rounds} rounds takes about {duration(planned_s)}"
    if planned_s > limit_s:
        return f"{planned}, so it is cut to the limit of {limit}."
    if config.most_rounds >= 2 * config.rounds:
        return (
            f"{planned}; up to {config.most_rounds} rounds and {limit} where variants are too close to call or the "
            "machine is busy."
        )
    return f"{planned}, at most {limit}."


def _tried(open_anew: Opener) -> tuple[float, float]:
    """Seconds of one opening with its first call, and of one call after that."""
    began = time.perf_counter()
    call = open_anew()
    call()
    opened = time.perf_counter()
    for _ in range(TRIED_CALLS):
        call()
    return opened - began, (time.perf_counter() - opened) / TRIED_CALLS


def _ended_by(rounds: int, took_s: float, config: BenchmarkConfig) -> str:
    limit_s = 60 * config.most_minutes
    if took_s >= limit_s or rounds < config.rounds:
        return f"after {rounds} rounds, by benchmark.most_minutes ({config.most_minutes:g})"
    return f"after {rounds} rounds, by benchmark.most_rounds ({config.most_rounds})"
