"""Timings: what was measured of every variant, and when one of them is slower than another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from edgekit.runner.measure import intervals
from edgekit.runner.measure.bench import summary

Latencies = dict[str, dict[str, float]]


@dataclass(frozen=True)
class Timings:
    """Milliseconds of every call by name, (rounds * calls,) each, and what it takes to tell two apart.

    A round is here all that one opening of the files had, see `bench.growing`. An interval says how far the openings
    in this process agree. It cannot see what differs from process to process (which core, what frequency), so a winner
    is decided from `tie_margin` on: 0.1 is 10 %. `cpu_ms`: the processor's time of a call, (all rounds,) by name.
    """

    samples_ms: Mapping[str, np.ndarray]
    rounds: int
    confidence: float
    tie_margin: float
    cpu_ms: Mapping[str, np.ndarray] = field(default_factory=dict)

    @cached_property
    def latencies(self) -> Latencies:
        """Percentiles, mean and throughput by name."""
        return {name: summary(values) for name, values in self.samples_ms.items()}

    def p50_ms(self, name: str) -> float:
        """The p50 of all calls."""
        return self.latencies[name]["p50_ms"]

    def fastest(self, names: Iterable[str]) -> str:
        """The fastest by point estimate."""
        return min(names, key=lambda name: (self._standings[name], name))

    def ratio(self, name: str, to: str) -> intervals.Ratio:
        """How many times slower `name` is than `to`."""
        return intervals.ratio(self.samples_ms[name], self.samples_ms[to], self.rounds, self.confidence)

    def is_slower(self, ratio: intervals.Ratio) -> bool:
        """True where the whole interval lies above the margin; otherwise the two are in a tie."""
        return ratio.low > 1 + self.tie_margin

    def median(self, name: str) -> intervals.Median:
        """The p50 with its interval."""
        return intervals.p50(self.samples_ms[name], self.rounds, self.confidence)

    @cached_property
    def _standings(self) -> dict[str, float]:
        return intervals.standings(self.samples_ms, self.rounds)
