"""Latencies of several models, measured so that no model is favoured over another.

The models are timed in rounds. In a round, each is called many times in a row, because a single call between those of
other models runs with cold caches, which doubles the time of a small model. The order rotates from round to round,
because the first model of a round is affected by what ran before it.

To compare two files, both are opened many times. Two opened instances of the same file differ in speed for as long as
they exist, because their memory lies at different addresses (Mytkowicz et al. 2009, "Producing wrong data without doing
anything obviously wrong!"). It is therefore not enough to repeat the calls; the openings have to be repeated as well
(Kalibera & Jones 2013, "Rigorous benchmarking in reasonable time").
"""

from __future__ import annotations

import gc
import math
import os
from collections.abc import Callable, Collection, Generator, Mapping
from time import perf_counter, perf_counter_ns, process_time_ns
from typing import Any

import numpy as np

from edgekit.runner import cpu
from edgekit.runner.errors import InputError

PERCENTILES = (50, 90, 95, 99)
MIN_OPENINGS = 10
"""The smallest number of openings from which an interval can be resampled."""
FRESH_CALLS = 10
"""Untimed calls after each opening, because the first calls touch memory for the first time and choose kernels."""


def time_interleaved(
    calls: Mapping[str, Callable[[], object]],
    rounds: int,
    calls_per_round: int,
    warmup_per_round: int,
    on_round: Callable[[int], object] | None = None,
    enough: Callable[[int], bool] | None = None,
    cpu_ms: dict[str, np.ndarray] | None = None,
) -> dict[str, np.ndarray]:
    """Return the milliseconds of every single call, an array (rounds * calls_per_round,) for each name in `calls`.

    After each round, `on_round` and `enough` are called with the number of rounds done so far. If `enough` returns
    true, the measurement ends early. `cpu_ms` is filled with the mean processor time of a call in each round, an array
    (rounds,) for each name. This time includes all threads of the process, so it exceeds the wall time if a call uses
    several threads.
    """
    for label, value, least in (("rounds", rounds, 1), ("calls", calls_per_round, 1), ("warmup", warmup_per_round, 0)):
        if value < least:
            raise InputError(f"{label}: got {value}; use a whole number from {least}")
    order = list(calls)
    wall_ns = {name: np.empty((rounds, calls_per_round), dtype=np.int64) for name in order}
    processor_ns = {name: np.empty(rounds, dtype=np.int64) for name in order}
    done = 0
    for number in range(rounds):
        start = number % len(order) if order else 0
        for name in order[start:] + order[:start]:
            wall_ns[name][number], processor_ns[name][number] = _time_calls(
                calls[name], calls_per_round, warmup_per_round
            )
        done = number + 1
        if on_round is not None:
            on_round(done)
        if enough is not None and enough(done):
            break
    if cpu_ms is not None:
        cpu_ms.update(
            {name: nanoseconds[:done] / (1e6 * calls_per_round) for name, nanoseconds in processor_ns.items()}
        )
    return {name: nanoseconds[:done].ravel() / 1e6 for name, nanoseconds in wall_ns.items()}


def timed_openings(
    openers: Mapping[str, Callable[[], Callable[[], object]]],
    rounds: int,
    most_rounds: int,
    calls_per_round: int,
    warmup_per_round: int,
    on_round: Callable[[int], object] | None = None,
    limit_s: float = math.inf,
    cpu_ms: dict[str, np.ndarray] | None = None,
) -> Generator[tuple[dict[str, np.ndarray], int], Collection[str] | None, None]:
    """Time calls like `time_interleaved`, but open every model again every few rounds, in rotating order.

    Each function in `openers` opens its model and returns the call to time. After every `rounds` rounds, up to
    `most_rounds`, this yields the milliseconds so far and the number of openings, so that the caller can stop when it
    knows enough. Every opening has the same number of calls, because `intervals` resamples whole openings.

    If the caller sends names, only these models are timed from then on. The other models keep their measurements, which
    stay paired, opening by opening, with those of the models that continue.

    After `limit_s` seconds, no model is opened again. If the first `rounds` rounds would take longer, each opening has
    fewer rounds, and more openings follow while time is left. In any case, there are `MIN_OPENINGS` openings of at
    least one round. `cpu_ms` is filled before each yield, as by `time_interleaved`.
    """
    first = opening_count(rounds)
    rounds_each, target, start = rounds // first, rounds, perf_counter()
    active = dict(openers)
    wall_ms: dict[str, list[np.ndarray]] = {name: [] for name in openers}
    processor_ms: dict[str, list[np.ndarray]] = {name: [] for name in openers}
    openings, is_late = 0, False
    while True:
        while openings * rounds_each < target and not (is_late and openings >= min(MIN_OPENINGS, first)):
            share_s = (limit_s - (perf_counter() - start)) / (first - openings) if openings < first else math.inf
            opening_ms, cpu, rounds_done = _opening(
                active, openings, rounds_each, calls_per_round, warmup_per_round, share_s
            )
            # A divisor of the planned number, so that whole openings still add up to `rounds` rounds.
            rounds_each = next(count for count in range(rounds_done, 0, -1) if rounds_each % count == 0)
            for name, values_ms in opening_ms.items():
                wall_ms[name].append(values_ms)
                processor_ms[name].append(cpu[name])
            openings += 1
            if on_round is not None:
                on_round(openings)
            is_late = perf_counter() - start >= limit_s
        if cpu_ms is not None:
            cpu_ms.update(
                {name: np.concatenate([each[:rounds_each] for each in values]) for name, values in processor_ms.items()}
            )
        calls = rounds_each * calls_per_round
        remaining = yield (
            {name: np.concatenate([each[:calls] for each in values_ms]) for name, values_ms in wall_ms.items()},
            openings,
        )
        if remaining is not None:
            active = {name: active[name] for name in active if name in remaining}
        target = openings * rounds_each + rounds
        if is_late or target > most_rounds or not active:
            return


def _opening(
    openers: Mapping[str, Callable[[], Callable[[], object]]],
    number: int,
    rounds: int,
    calls_per_round: int,
    warmup_per_round: int,
    share_s: float,
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], int]:
    """Open each model once, and time its calls in as many rounds as fit into `share_s` seconds, but in at least one.

    Returns wall-clock milliseconds, processor milliseconds, and the number of rounds.
    """
    start_s, order = perf_counter(), list(openers)
    start = number % len(order) if order else 0
    calls: dict[str, Callable[[], object]] = {}  # those of the previous opening are closed by now
    for name in order[start:] + order[:start]:
        calls[name] = openers[name]()
        for _ in range(FRESH_CALLS):
            calls[name]()
    timing_start, rounds_done = perf_counter(), 0

    def enough(done: int) -> bool:
        nonlocal rounds_done
        rounds_done = done
        now = perf_counter()
        return now - start_s + (now - timing_start) / done > share_s

    cpu_ms: dict[str, np.ndarray] = {}
    return (
        time_interleaved(calls, rounds, calls_per_round, warmup_per_round, enough=enough, cpu_ms=cpu_ms),
        cpu_ms,
        rounds_done,
    )


def opening_count(rounds: int) -> int:
    """Return how often each model is opened in this many rounds.

    It is the smallest number from `MIN_OPENINGS` on that divides `rounds`, so that all openings have the same number of
    rounds. With fewer than `MIN_OPENINGS` rounds, each round has an opening of its own.
    """
    return next(count for count in range(min(MIN_OPENINGS, rounds), rounds + 1) if rounds % count == 0)


def _time_calls(call: Callable[[], object], count: int, warmup: int) -> tuple[list[int], int]:
    """Return the nanoseconds of each call, and the processor time of all calls, with that for reading the clock."""
    for _ in range(warmup):
        call()
    nanoseconds = [0] * count
    gc_enabled = gc.isenabled()
    gc.disable()
    processor_start = process_time_ns()
    try:
        for index in range(count):
            before = perf_counter_ns()
            call()
            nanoseconds[index] = perf_counter_ns() - before
        processor_ns = process_time_ns() - processor_start
    finally:
        if gc_enabled:
            gc.enable()
    return nanoseconds, processor_ns


def latency_summary(samples_ms: np.ndarray) -> dict[str, float]:
    """Return the percentiles (linearly interpolated), the mean, and the throughput of calls one after another."""
    if len(samples_ms) == 0:
        raise InputError("samples_ms: got no sample; time at least one call")
    mean_ms = float(np.mean(samples_ms))
    values = np.percentile(samples_ms, PERCENTILES)
    percentiles = {f"p{rank}_ms": float(value) for rank, value in zip(PERCENTILES, values)}
    return {
        **percentiles,
        "mean_ms": mean_ms,
        "throughput_per_s": 1000.0 / max(mean_ms, 1e-9),
        "calls": len(samples_ms),
    }


def machine_facts() -> dict[str, Any]:
    """Return the facts about this machine that must accompany every measurement taken on it."""
    import platform

    return {
        "host": platform.node(),
        "cpu": cpu.name() or platform.processor() or "unknown",
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "machine": platform.machine(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "numpy": np.__version__,
    }
