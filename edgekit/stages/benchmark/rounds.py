"""Time variants in rounds: predict the duration, and add rounds until all comparisons are settled or time is up."""

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
from edgekit.stages.benchmark.decision import Decision, decide, unresolved_speedups, unresolved_steps
from edgekit.stages.benchmark.timings import Timings
from edgekit.stages.benchmark.winners import ClassTimings, OpenComparison, too_close_to_call

TRIAL_CALLS = 2
"""The number of calls of each model before the rounds, from which the duration of the rounds is predicted."""

Opener = Callable[[], Callable[[], object]]


class RoundsResult(NamedTuple):
    """The result of the rounds. `stayed_open` has a line for each comparison that was still unsettled at the end."""

    decision: Decision
    timings: Timings
    stayed_open: list[str]


def measure_rounds(
    rows: Sequence[ModelFacts],
    openers: Mapping[str, Opener],
    config: BenchmarkConfig,
    recorder: conditions.ConditionsRecorder,
    recorded: dict[str, Any] | None,
    deciding: ClassTimings | None = None,
) -> RoundsResult:
    """Time everything, then add rounds until every winner and every gain is settled.

    Another run then gives the same decision, even if the machine is less busy. The added rounds time only the variants
    of unsettled comparisons, because a significantly slower variant can no longer win. `most_rounds` and `most_minutes`
    limit the added rounds. Comparisons that are still unsettled at a limit are listed in the result. A variant whose
    interval is still too wide then stays in the tie, so that the smallest file wins. If `deciding` has the latencies of
    devices, these rounds only settle the gains, because the winners are decided on the devices.
    """
    counts = (config.rounds, config.most_rounds, config.calls_per_round, config.warmup_per_round)
    openings = opening_count(config.rounds)
    limit_s = 60 * config.most_minutes
    with progress.step("timing the variants", "opening", openings) as bar:
        progress.announce(expected_duration(openers, config))

        def on_opening(opened: int) -> None:
            # With a short time limit the number of openings is unknown, so more than planned are possible.
            bar.update(opened, of=0 if opened > bar.state.of else None)

        started, on_round = time.monotonic(), progress.call_both(recorder.sample, on_opening)
        cpu_ms: dict[str, np.ndarray] = {}
        measurement = timed_openings(openers, *counts, on_round=on_round, limit_s=limit_s, cpu_ms=cpu_ms)
        samples_ms, opened = next(measurement)
        timed_names = set(openers)
        while True:
            timings = Timings(samples_ms, opened, config.confidence, config.tie_margin, dict(cpu_ms))
            decision = decide(rows, timings, config.budget, config.targets, recorded, deciding)
            still_open = open_now(decision, config.tie_margin, winners=deciding is None)
            timed_names = {
                name for each in still_open if timed_names.issuperset(each.variants) for name in each.variants
            }
            if not timed_names:
                break
            description = f"timing {len(timed_names)} models, with more rounds: {len(still_open)} unsettled comparisons"
            bar.update(opened, of=opened + openings, name=description)
            try:
                samples_ms, opened = measurement.send(timed_names)
            except StopIteration:  # a limit was reached
                break
        elapsed_s = time.monotonic() - started
        rounds_done = max(map(len, samples_ms.values())) // config.calls_per_round
        open_texts = [comparison.text for comparison in still_open]
        was_dropped = open_texts and not timed_names  # an unsettled comparison needs a variant that was dropped
        end = (
            f"after {rounds_done} rounds, because a variant had been dropped"
            if was_dropped
            else _end_reason(rounds_done, elapsed_s, config)
        )
        if open_texts:
            are_open = "1 comparison is" if len(open_texts) == 1 else f"{len(open_texts)} comparisons are"
            progress.announce(f"Timing stopped {end}; {are_open} still too close to call, see the report.")
        elif rounds_done < config.rounds:
            progress.announce(f"Timing stopped {end}; every comparison is settled.")
    return RoundsResult(decision, timings, [f"{text}; rounds ended {end}" for text in open_texts])


def open_now(decision: Decision, tie_margin: float, winners: bool = True) -> list[OpenComparison]:
    """Return the comparisons that more rounds could settle: close winners, and imprecise gains and speed-ups."""
    return [
        *(too_close_to_call(decision.decisions, tie_margin) if winners else []),
        *unresolved_steps(decision.metrics["waterfall"], tie_margin),
        *unresolved_speedups(decision.metrics, tie_margin),
    ]


def expected_duration(openers: Mapping[str, Opener], config: BenchmarkConfig) -> str:
    """Predict from a few calls of each model how long the rounds will take.

    Returns a sentence with this duration and the time limit.
    """
    opening_s, call_s = map(sum, zip(*map(_time_trial_calls, openers.values()), strict=True))

    def seconds(openings: int, rounds: int) -> float:
        calls = rounds * (config.calls_per_round + config.warmup_per_round) + openings * FRESH_CALLS
        return openings * opening_s + calls * call_s

    planned_s, least_s = seconds(opening_count(config.rounds), config.rounds), seconds(MIN_OPENINGS, MIN_OPENINGS)
    return _planned(len(openers), planned_s, least_s, config)


def _planned(models: int, planned_s: float, least_s: float, config: BenchmarkConfig) -> str:
    """Describe the planned duration and its limit; `least_s` is the duration of the rounds that are always timed."""
    limit_s = 60 * config.most_minutes
    limit = f"{duration(limit_s)} (benchmark.most_minutes)"
    if least_s > limit_s:
        least = f"Timing {models} models for the {MIN_OPENINGS} required rounds should take about {duration(least_s)}"
        return f"{least}, which is longer than the limit of {limit}."
    planned = f"Timing {models} models in {config.rounds} rounds should take about {duration(planned_s)}"
    if planned_s > limit_s:
        return f"{planned}, so it is cut to the limit of {limit}."
    if config.most_rounds >= 2 * config.rounds:
        return (
            f"{planned}, or up to {config.most_rounds} rounds and {limit} if variants are too close to call or the "
            "machine is busy."
        )
    return f"{planned} (limit: {duration(limit_s)}, benchmark.most_minutes)."


def _time_trial_calls(open_anew: Opener) -> tuple[float, float]:
    """Return two durations in seconds: of opening a model and its first call together, and of a later call."""
    started = time.perf_counter()
    call = open_anew()
    call()
    opened = time.perf_counter()
    for _ in range(TRIAL_CALLS):
        call()
    return opened - started, (time.perf_counter() - opened) / TRIAL_CALLS


def _end_reason(rounds: int, took_s: float, config: BenchmarkConfig) -> str:
    limit_s = 60 * config.most_minutes
    if took_s >= limit_s or rounds < config.rounds:
        return f"after {rounds} rounds, at the limit of {config.most_minutes:g} min set by benchmark.most_minutes"
    return f"after {rounds} rounds, the limit set by benchmark.most_rounds"
