"""Figures of rounds: their middle and interval, what one is of another, and what a target says to them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgekit.device.measure import intervals

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Interval:
    """The median over rounds and its 95 % interval; of fewer than ten rounds, the least and the most instead."""

    middle: float
    low: float
    high: float
    rounds: int

    @property
    def is_sure(self) -> bool:
        """Whether the ends are those of an interval."""
        return self.rounds >= intervals.LEAST_ROUNDS

    def text(self, form: str = "{:.3g}") -> str:
        """For a table."""
        low, high = form.format(self.low), form.format(self.high)
        return f"{form.format(self.middle)} ({low} to {high}{'' if self.is_sure else ', least and most'})"


def of(values: Sequence[float]) -> Interval:
    """One value a round."""
    if len(values) >= intervals.LEAST_ROUNDS:
        found = intervals.p50(np.asarray(values, float), len(values), CONFIDENCE)
        return Interval(found.p50_ms, found.low_ms, found.high_ms, len(values))
    return Interval(float(np.median(values)), float(min(values)), float(max(values)), len(values))


def quotient(values: Sequence[float], by: Sequence[float]) -> Interval:
    """The median over rounds of one value over the other of the same round."""
    if len(values) >= intervals.LEAST_ROUNDS:
        found = intervals.ratio(np.asarray(values, float), np.asarray(by, float), len(values), CONFIDENCE)
        return Interval(found.ratio, found.low, found.high, len(values))
    return of([value / other if other else math.inf for value, other in zip(values, by, strict=True)])


def cpu_us(cpu_s: float, answered: int) -> float:
    """Microseconds of CPU an answer; infinity where nothing was answered."""
    return cpu_s * 1e6 / answered if answered else math.inf


def per_cpu_s(cpu_s: float, answered: int) -> float:
    """Answers a second of CPU; infinity where the clock did not move."""
    return answered / cpu_s if cpu_s else math.inf


def percentile(values: Sequence[float], share: float) -> float:
    """Of single requests; NaN of none."""
    return float(np.quantile(values, share)) if len(values) else math.nan


@dataclass(frozen=True)
class Target:
    """What the figure is to reach: at least, or at most."""

    what: str
    bound: float
    at_least: bool = True

    def verdict(self, found: Interval) -> str:
        """In words; undecided where the bound lies within the interval."""
        low, high = (found.low, found.high) if self.at_least else (-found.high, -found.low)
        bound = self.bound if self.at_least else -self.bound
        return "reached" if low >= bound else "not reached" if high < bound else "undecided"

    def line(self, found: Interval, form: str = "{:.3g}") -> str:
        """Target, figure and verdict."""
        sign = ">=" if self.at_least else "<="
        return f"{self.what}: {found.text(form)}, target {sign} {self.bound:g}: {self.verdict(found)}"
