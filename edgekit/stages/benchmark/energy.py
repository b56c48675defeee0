"""Energy of a call: blocks of calls in rounds, in rotating order, with one block of nothing in each.

Counters and meters are too coarse for the rounds of timing, so these are rounds of their own, of longer blocks. What
the idle machine takes in a round is subtracted from that round's blocks. What other processes take is not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from edgekit.core import progress
from edgekit.core.progress_state import duration
from edgekit.device.measure.bench import FRESH_CALLS
from edgekit.device.measure.intervals import LEAST_ROUNDS
from edgekit.measure import lane
from edgekit.measure.energy import Source

ROUNDS = LEAST_ROUNDS
IDLE = ""
"""The name of the block in which nothing is called."""


@dataclass(frozen=True)
class Drawn:
    """Joules of a call by name, (rounds,) each, without and with what the idle machine takes; its watts (rounds,)."""

    source: str
    seconds: float
    joules: Mapping[str, np.ndarray]
    with_idle: Mapping[str, np.ndarray]
    idle_watts: np.ndarray


@lane.measuring()
def measure(openers: Mapping[str, Callable[[], Callable[[], object]]], source: Source, seconds: float) -> Drawn:
    """`ROUNDS` blocks of `seconds` of each, opened anew for each block. Unreadable where `source` fails."""
    order = [IDLE, *openers]
    progress.say(f"Energy by {source.name}: about {duration(ROUNDS * len(order) * seconds)}.")
    watts, gross = np.empty(ROUNDS), {name: np.empty(ROUNDS) for name in openers}
    took_s = {name: np.empty(ROUNDS) for name in openers}
    with progress.step("energy", "round", ROUNDS) as shown:
        for number in range(ROUNDS):
            start = number % len(order)
            for name in order[start:] + order[:start]:
                if name == IDLE:
                    spent = source.of(lambda: time.sleep(seconds))
                    watts[number] = spent.joules / spent.seconds
                    continue
                block = _Block(openers[name](), seconds)
                spent = source.of(block)
                gross[name][number] = spent.joules / block.calls
                took_s[name][number] = spent.seconds / block.calls
            shown.at(number + 1)
    net = {name: gross[name] - watts * took_s[name] for name in openers}
    return Drawn(source.name, seconds, net, gross, watts)


class _Block:
    """Calls one after another for some seconds, counted; the first ones of what was just opened come before."""

    def __init__(self, call: Callable[[], object], seconds: float) -> None:
        self._call, self._seconds, self.calls = call, seconds, 0
        for _ in range(FRESH_CALLS):
            call()

    def __call__(self) -> None:
        until = perf_counter() + self._seconds
        while perf_counter() < until:
            self._call()
            self.calls += 1
