"""Timings of all variants, and the rule by which one variant is slower than another."""

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
    """The times of all calls of each variant, and the options for comparing two variants.

    Here, a round is everything that was timed with one opening of the files; see `bench.timed_openings`. `samples_ms`
    has an array of shape (rounds * calls,) for each variant. `cpu_ms` has the processor time of a call in each of the
    shorter rounds that one opening consists of.

    An interval shows only how well the openings in this process agree. It does not cover differences between processes,
    such as the core or its frequency, so a difference must exceed `tie_margin` (0.1 means 10 %) to decide a winner.

    `rounds` is the number of rounds of the variant that was timed longest. A variant that was dropped earlier has fewer
    rounds, and two variants are compared by the first rounds that both have.
    """

    samples_ms: Mapping[str, np.ndarray]
    rounds: int
    confidence: float
    tie_margin: float
    cpu_ms: Mapping[str, np.ndarray] = field(default_factory=dict)

    @cached_property
    def latencies(self) -> Latencies:
        """The percentiles, mean and throughput by name."""
        return {name: latency_summary(values) for name, values in self.samples_ms.items()}

    def p50_ms(self, name: str) -> float:
        """Return the p50 of all calls in ms."""
        return self.latencies[name]["p50_ms"]

    def rounds_of(self, *names: str) -> int:
        """Return the number of rounds that all of `names` have."""
        return min(len(self.samples_ms[name]) for name in names) // self._calls

    def fastest(self, names: Iterable[str]) -> str:
        """Return the fastest of `names` by point estimate.

        If some have more rounds than others, the variant that is fastest in the rounds common to all is compared with
        each of the others, using all rounds that the two share.
        """
        names = sorted(names)
        rounds = self.rounds_of(*names)
        relative = intervals.relative_latencies({name: self._first(name, rounds) for name in names}, rounds)
        first = min(names, key=lambda name: relative[name])
        if rounds == max(self.rounds_of(name) for name in names):
            return first
        return min(names, key=lambda name: self._ratio_to(name, first))

    def ratio(self, name: str, to: str) -> intervals.RatioInterval:
        """Return the latency of `name` divided by that of `to`, with its interval, from the rounds that both have."""
        rounds = self.rounds_of(name, to)
        return intervals.ratio_interval(self._first(name, rounds), self._first(to, rounds), rounds, self.confidence)

    def is_slower(self, ratio: intervals.RatioInterval) -> bool:
        """Return True if the whole interval of a ratio of latencies lies above 1 + `tie_margin`."""
        return ratio.low > 1 + self.tie_margin

    def median(self, name: str) -> intervals.MedianInterval:
        """Return the p50 with its interval."""
        return intervals.p50_interval(self.samples_ms[name], self.rounds_of(name), self.confidence)

    @cached_property
    def _calls(self) -> int:
        return max(map(len, self.samples_ms.values())) // self.rounds

    def _first(self, name: str, rounds: int) -> np.ndarray:
        return self.samples_ms[name][: rounds * self._calls]

    def _ratio_to(self, name: str, to: str) -> float:
        rounds = self.rounds_of(name, to)
        own_p50s, other_p50s = (intervals.round_p50s(self._first(each, rounds), rounds) for each in (name, to))
        return float(np.median(np.log(own_p50s) - np.log(other_p50s)))
