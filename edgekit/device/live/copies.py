"""Copies of the models, by which frames of several sources are answered at once.

Threads that share one call wait for each other, so several calls with fewer threads each can answer more frames per
second, although each call takes longer. A copy gives the same bits as its model, or it is not used. It holds the
weights once more.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from edgekit.device.live.config import MOST_PARALLEL
from edgekit.runner import cpu
from edgekit.runner.errors import InputError, RunnerError
from edgekit.runner.model import Model, open_model

PAYS = 1.1
"""If it is measured, copies are used if they answer this many times as many frames per second."""
ROUNDS, ROUND_S, CHECK_S = 7, 0.1, 2.0


@dataclass(frozen=True)
class Copies:
    """The models of each thread that answers frames."""

    threads: tuple[Mapping[int, Model], ...] = ({},)
    """For each thread, its copies by the `id` of the model; a model without a copy is used itself."""
    gain: float | None = None
    """How many times as many frames per second they answer as the models themselves, if it was measured."""

    def __len__(self) -> int:
        return len(self.threads)


def choose(models: Sequence[Model], sources: int, count: int | None) -> Copies:
    """Return copies for as many frames at once as are asked for, or as pay off.

    Parameters
    ----------
    models : sequence of Model
    sources : int
        How many sources there are. Frames of one source are answered one after the other.
    count : int or None
        How many frames to answer at once, without a measurement. If None, one for each source up to the number of
        processors, if a measurement of about two seconds shows that this answers more frames per second.

    Raises
    ------
    InputError
        `count` is not possible: a model has states, or its answers would not keep all their bits.
    BackendError
        A copy cannot be opened.
    """
    most = min(sources, MOST_PARALLEL)
    if count is not None:
        return Copies(_open(models, min(count, most))) if min(count, most) > 1 else Copies()
    possible = min(most, cpu.usable_core_count())
    if possible < 2 or any(model.device != "CPU" or model.manifest.states for model in models):
        return Copies()
    try:
        copies = _open(models, possible)
        gain = measure_gain(models, copies)
    except RunnerError:  # such as too little memory: the models themselves are there
        return Copies()
    return Copies(copies, gain) if gain >= PAYS else Copies()


def measure_gain(models: Sequence[Model], copies: Sequence[Mapping[int, Model]]) -> float:
    """Return how many times as many frames per second the copies answer, side by side, as the models one by one."""
    samples = [model.golden()[0] for model in models]
    ours = [[each[id(model)] for model in models] for each in copies]
    _rate([list(models)], samples, 0.0)  # the first calls are slow
    _rate(ours, samples, 0.0)
    return statistics.median(
        _rate(ours, samples, ROUND_S) / _rate([list(models)], samples, ROUND_S) for _ in range(ROUNDS)
    )


def _open(models: Sequence[Model], count: int) -> tuple[Mapping[int, Model], ...]:
    opened: list[dict[int, Model]] = [{} for _ in range(count)]
    for model in models:
        if model.manifest.states:
            raise InputError(f"parallel: got {count}; {model.manifest.name} has states, so use parallel: 1")
        threads = max(1, min(model.threads, cpu.usable_core_count() // count))
        for number, each in enumerate(opened):
            is_same = number == 0 and threads == model.threads
            each[id(model)] = model if is_same else _open_copy(model, threads)
        _check_bits(model, opened[-1][id(model)], count)
    return tuple(opened)


def _open_copy(model: Model, threads: int) -> Model:
    return open_model(model.bundle, threads, model.backend.name, model.device)


def _check_bits(model: Model, copy: Model, count: int) -> None:
    """Raise InputError if a copy gives other bits for a golden sample."""
    started = time.monotonic()
    for raw in model.golden()[0]:
        if not np.array_equal(model.execute(model.prepare(raw)), copy.execute(copy.prepare(raw))):
            raise InputError(
                f"parallel: got {count}; with {copy.threads} instead of {model.threads} threads the answers of "
                f"{model.manifest.name} differ in their last bits; use parallel: 1, or --threads {copy.threads}"
            )
        if time.monotonic() - started > CHECK_S:
            return


def _rate(threads: Sequence[Sequence[Model]], samples: Sequence[np.ndarray], seconds: float) -> float:
    """Return frames per second, with one thread for each sequence of models; at least one frame is answered by each."""
    rates: list[float] = []
    problems: list[RunnerError] = []

    def run(models: Sequence[Model]) -> None:
        started, answered = time.perf_counter(), 0
        try:
            while not answered or time.perf_counter() - started < seconds:
                for model, raws in zip(models, samples):
                    model.execute(model.prepare(raws[answered % len(raws)]))
                answered += 1
            rates.append(answered / (time.perf_counter() - started))
        except RunnerError as error:
            problems.append(error)

    running = [threading.Thread(target=run, args=(models,), daemon=True) for models in threads]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    if problems:
        raise problems[0]
    return sum(rates)
