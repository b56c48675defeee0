"""Timings: what was measured of every variant, and when one of them is slower than another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from edgekit.device.measure import intervals
from edgekit.device.measure.bench import latency_summary

Latencies = dict[str, dict[str, float]]


@dataclass(frozen=True)
class Timings:
    """Milliseconds of every call by name, (rounds * calls,) each, and what it takes to tell two apart.

    A round is here all that one opening of the files had, see `bench.timed_openings`. An interval says how far the
    openings in this process agree. It cannot see what differs from process to process (which core, what frequency),
    so a winner is decided from `tie_margin` on: 0.1 is 10 %. `cpu_ms`: the processor's time of a call, (all rounds,)
    by name. `rounds` are those of what was timed longest. A variant that was given up earlier has fewer, and is
    compared by the rounds that both have: the first ones of each.
    """

    samples_ms: Mapping[str, np.ndarray]
    rounds: int
    confidence: float
    tie_margin: float
    cpu_ms: Mapping[str, np.ndarray] = field(default_factory=dict)

    @cached_property
    def latencies(self) -> Latencies:
        """Percentiles, mean and throughput by name."""
        return {name: latency_summary(values) for name, values in self.samples_ms.items()}

    def p50_ms(self, name: str) -> float:
        """The p50 of all calls."""
        return self.latencies[name]["p50_ms"]

    def rounds_of(self, *names: str) -> int:
        """How many rounds all of these have."""
        return min(len(self.samples_ms[name]) for name in names) // self._calls

    def fastest(self, names: Iterable[str]) -> str:
        """The fastest by point estimate: by the rounds that all have, and beside that one by all that two share."""
        names = sorted(names)
        rounds = self.rounds_of(*names)
        standings = intervals.relative_latencies({name: self._first(name, rounds) for name in names}, rounds)
        first = min(names, key=lambda name: standings[name])
        if rounds == max(self.rounds_of(name) for name in names):
            return first
        return min(names, key=lambda name: self._ratio_to(name, first))

    def ratio(self, name: str, to: str) -> intervals.RatioInterval:
        """How many times slower `name` is than `to`, by the rounds that both have."""
        rounds = self.rounds_of(name, to)
        return intervals.ratio_interval(self._first(name, rounds), self._first(to, rounds), rounds, self.confidence)

    def is_slower(self, ratio: intervals.RatioInterval) -> bool:
        """True where the whole interval lies above the margin; otherwise the two are in a tie."""
        return ratio.low > 1 + self.tie_margin

    def median(self, name: str) -> intervals.MedianInterval:
        """The p50 with its interval."""
        return intervals.p50_interval(self.samples_ms[name], self.rounds_of(name), self.confidence)

    @cached_property
    def _calls(self) -> int:
        return max(map(len, self.samples_ms.values())) // self.rounds

    def _first(self, name: str, rounds: int) -> np.ndarray:
        return self.samples_ms[name][: rounds * self._calls]

    def _ratio_to(self, name: str, to: str) -> float:
        rounds = self.rounds_of(name, to)
        one, other = (intervals.round_p50s(self._first(each, rounds), rounds) for each in (name, to))
        return float(np.median(np.log(one) - np.log(other)))
