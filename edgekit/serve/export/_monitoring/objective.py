"""The service level objective that the alerts hold: p99 of whole requests, and the share that is answered."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from edgekit.core.errors import ConfigError
from edgekit.device.monitor import histogram

P99 = "100ms"
AVAILABILITY = "99.9"
LATENCY_BUDGET = 0.01
"""Of all answers so many may be slower: that is what p99 means."""
LEAST, MOST = 95.0, 99.999
"""Bounds of an availability in percent. Below 93.1 no share of failures burns the budget 14.4 times too fast."""
UNITS_MS = {"us": 1e-3, "ms": 1.0, "s": 1e3}


@dataclass(frozen=True)
class Objective:
    """`bound` is the `le` of the bucket that decides, `asked_ms` what was asked for, `availability` in percent."""

    asked_ms: float
    bound: str
    availability: float

    @property
    def bound_ms(self) -> float:
        """The latency that decides, in milliseconds."""
        return float(self.bound) * 1e3

    @property
    def availability_budget(self) -> float:
        """The share of requests that may go without an answer."""
        return round(1 - self.availability / 100, 9)

    @property
    def lines(self) -> list[str]:
        """What holds, for the console and the README; a threshold that was rounded is told."""
        asked, bound = f"{self.asked_ms:g} ms", f"{self.bound_ms:.4g} ms"
        latency = f"latency: 99 % of the answers come within {bound}"
        if asked != bound:
            latency += f" (asked for {asked}; {bound} is the nearest bucket of the histogram)"
        return [latency, f"availability: {self.availability:g} % of the requests are answered"]


def bounds() -> list[str]:
    """The `le` of every bucket that a latency histogram shows, without `+Inf`."""
    return [bound for bound, _ in histogram.buckets([0] * (len(histogram.BOUNDS_MS) + 1))][:-1]


def read(p99: str | None, availability: str | None) -> Objective:
    """Both as they were given, or the defaults; ConfigError where one is no such number, or out of bounds."""
    asked_ms = _latency_ms(P99 if p99 is None else p99)
    nearest = min(bounds(), key=lambda bound: abs(math.log(float(bound) * 1e3 / asked_ms)))
    return Objective(asked_ms, nearest, _percent(AVAILABILITY if availability is None else availability))


def _latency_ms(text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(us|ms|s)", text.strip())
    if not found:
        raise ConfigError(f"--slo-p99: got {text!r}; write a number with its unit, for example 50ms or 0.2s")
    asked_ms = float(found[1]) * UNITS_MS[found[2]]
    least_ms, most_ms = (float(bounds()[place]) * 1e3 for place in (0, -1))
    if not least_ms <= asked_ms <= most_ms:
        raise ConfigError(f"--slo-p99: got {text!r}; the histogram reaches from {least_ms:g}ms to {most_ms:.4g}ms")
    return asked_ms


def _percent(text: str) -> float:
    try:
        value = float(text.strip().removesuffix("%"))
    except ValueError:
        value = math.nan
    if not LEAST <= value <= MOST:
        raise ConfigError(f"--availability: got {text!r}; write a percentage from {LEAST:g} to {MOST:g}, such as 99.9")
    return value
