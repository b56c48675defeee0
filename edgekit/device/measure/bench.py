"""Latency of calls, measured so that one is not favoured over another.

Calls take turns in rounds of many calls: a single call between foreign ones runs on cold caches, which doubles the time
of a small model. The order rotates, because the first of a round pays for what ran before it.

To compare two files, both are opened again many times: two instances of one file differ, each in its own way
for as long as it lives, by where its memory lies (Mytkowicz et al. 2009, "Producing wrong data without doing anything
obviously wrong!"). The opening is then what repeats, not the call (Kalibera & Jones 2013, "Rigorous benchmarking in
reasonable time").
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
"""As many as an interval needs of what it resamples."""
FRESH_CALLS = 10
"""Untimed, of what was just opened: its first calls touch memory for the first time and choose kernels."""


def time_interleaved(
    calls: Mapping[str, Callable[[], object]],
    rounds: int,
    calls_per_round: int,
    warmup_per_round: int,
    on_round: Callable[[int], object] | None = None,
    enough: Callable[[int], bool] | None = None,
    cpu_ms: dict[str, np.ndarray] | None = None,
) -> dict[str, np.ndarray]:
    """Milliseconds of every single call, (rounds * calls_per_round,) each.

    `on_round` is called with the rounds done, from 1. `enough` is asked after each: true ends it, with fewer rounds.
    `cpu_ms` is filled with the processor's time of one call by round, (rounds,) each: of all threads of this process,
    which makes it more than the wall time where a call has several.
    """
    for what, value, least in (("rounds", rounds, 1), ("calls", calls_per_round, 1), ("warmup", warmup_per_round, 0)):
        if value < least:
            raise InputError(f"{what}: got {value}; use a whole number from {least}")
    order = list(calls)
    taken = {name: np.empty((rounds, calls_per_round), dtype=np.int64) for name in order}
    spent = {name: np.empty(rounds, dtype=np.int64) for name in order}
    done = 0
    for number in range(rounds):
        start = number % len(order) if order else 0
        for name in order[start:] + order[:start]:
            taken[name][number], spent[name][number] = _timed(calls[name], calls_per_round, warmup_per_round)
        done = number + 1
        if on_round is not None:
            on_round(done)
        if enough is not None and enough(done):
            break
    if cpu_ms is not None:
        cpu_ms.update({name: nanoseconds[:done] / (1e6 * calls_per_round) for name, nanoseconds in spent.items()})
    return {name: nanoseconds[:done].ravel() / 1e6 for name, nanoseconds in taken.items()}


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
    """As `interleaved`, of what `openers` open anew, in rotating order, every few rounds.

    Gives the milliseconds so far and how many openings they are from, after every `rounds` more while that is no more
    than `most_rounds`: the caller stops when it knows enough. Each opening has as many calls as any other, and is what
    `intervals` are to resample.

    A caller that `send`s names has only these timed from then on. The others keep what they have, which pairs with the
    first openings of those that go on.

    After `limit_s` seconds nothing is opened any more. Where the first `rounds` would take longer, every opening has
    fewer of them, and there are more openings while the time lasts. `LEAST_OPENINGS` of one round each there are in
    any case. `cpu_ms` is filled as by `interleaved`, before each time that something is given.
    """
    first = opening_count(rounds)
    each_has, target, began = rounds // first, rounds, perf_counter()
    timed = dict(openers)
    taken: dict[str, list[np.ndarray]] = {name: [] for name in openers}
    spent: dict[str, list[np.ndarray]] = {name: [] for name in openers}
    opened, late = 0, False
    while True:
        while opened * each_has < target and not (late and opened >= min(MIN_OPENINGS, first)):
            share_s = (limit_s - (perf_counter() - began)) / (first - opened) if opened < first else math.inf
            some, cpu, had = _opening(timed, opened, each_has, calls_per_round, warmup_per_round, share_s)
            each_has = next(count for count in range(had, 0, -1) if each_has % count == 0)  # so `rounds` still come out
            for name, values_ms in some.items():
                taken[name].append(values_ms)
                spent[name].append(cpu[name])
            opened += 1
            if on_round is not None:
                on_round(opened)
            late = perf_counter() - began >= limit_s
        if cpu_ms is not None:
            cpu_ms.update(
                {name: np.concatenate([each[:each_has] for each in values]) for name, values in spent.items()}
            )
        calls = each_has * calls_per_round
        only = yield (
            {name: np.concatenate([each[:calls] for each in values_ms]) for name, values_ms in taken.items()},
            opened,
        )
        if only is not None:
            timed = {name: timed[name] for name in timed if name in only}
        target = opened * each_has + rounds
        if late or target > most_rounds or not timed:
            return


def _opening(
    openers: Mapping[str, Callable[[], Callable[[], object]]],
    number: int,
    rounds: int,
    calls_per_round: int,
    warmup_per_round: int,
    share_s: float,
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], int]:
    """Milliseconds of one opening of each, the processor's, and its rounds.

    So many rounds as `share_s` seconds are enough for, or one.
    """
    began, order = perf_counter(), list(openers)
    start = number % len(order) if order else 0
    calls: dict[str, Callable[[], object]] = {}  # those of the opening before have gone
    for name in order[start:] + order[:start]:
        calls[name] = openers[name]()
        for _ in range(FRESH_CALLS):
            calls[name]()
    timed_from, had = perf_counter(), 0

    def enough(done: int) -> bool:
        nonlocal had
        had = done
        now = perf_counter()
        return now - began + (now - timed_from) / done > share_s

    cpu_ms: dict[str, np.ndarray] = {}
    return time_interleaved(calls, rounds, calls_per_round, warmup_per_round, enough=enough, cpu_ms=cpu_ms), cpu_ms, had


def opening_count(rounds: int) -> int:
    """How many times each is opened anew for so many rounds: at least `LEAST_OPENINGS`, all with as many rounds."""
    return next(count for count in range(min(MIN_OPENINGS, rounds), rounds + 1) if rounds % count == 0)


def _timed(call: Callable[[], object], count: int, warmup: int) -> tuple[list[int], int]:
    """Nanoseconds of each call; and those of the processor for all of them, with reading the clock between."""
    for _ in range(warmup):
        call()
    nanoseconds = [0] * count
    collecting = gc.isenabled()
    gc.disable()
    began = process_time_ns()
    try:
        for index in range(count):
            before = perf_counter_ns()
            call()
            nanoseconds[index] = perf_counter_ns() - before
        spent = process_time_ns() - began
    finally:
        if collecting:
            gc.enable()
    return nanoseconds, spent


def latency_summary(samples_ms: np.ndarray) -> dict[str, float]:
    """Percentiles (linear interpolation), mean, and the throughput of calls made one after another."""
    if len(samples_ms) == 0:
        raise InputError("samples_ms: got no sample; time at least one call")
    mean_ms = float(np.mean(samples_ms))
    values = np.percentile(samples_ms, PERCENTILES)
    figures = {f"p{rank}_ms": float(value) for rank, value in zip(PERCENTILES, values)}
    return {**figures, "mean_ms": mean_ms, "throughput_per_s": 1000.0 / max(mean_ms, 1e-9), "calls": len(samples_ms)}


def machine_facts() -> dict[str, Any]:
    """What a figure must carry with it: where it was taken."""
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
