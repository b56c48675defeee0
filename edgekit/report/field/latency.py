"""Compute percentiles of counted latencies, and their ratio between two reports, with intervals.

Latencies are counted in bins whose bounds are 15 % apart. Within a bin, a percentile is interpolated evenly in the
logarithm. Its interval is that of order statistics (Wilks 1948; Conover 1999, "Practical Nonparametric Statistics",
section 3.2): the percentile lies between the k-th and the l-th shortest call, where k and l follow from the normal
approximation of the binomial distribution. The ends of the interval are the outer bounds of the bins in which these two
calls lie, so the interval does not depend on the interpolation. The interval of a ratio combines the intervals of both
reports. Each of these has half the probability of error that the interval of the ratio may have (Bonferroni).

The intervals cover chance between independent calls. They do not cover differences between days or devices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import NormalDist

from edgekit.device.monitor.histogram import BOUNDS_MS

CONFIDENCE = 0.99
LOWEST_MS = BOUNDS_MS[0] / 1.15


@dataclass(frozen=True)
class LatencyPercentile:
    """A percentile in milliseconds. `low_ms` and `high_ms` are None if there are too few calls for an interval."""

    value_ms: float
    low_ms: float | None
    high_ms: float | None

    def __str__(self) -> str:
        if self.low_ms is None or self.high_ms is None:
            return f"{self.value_ms:.4g} ms, too few answers for an interval"
        return f"{self.value_ms:.4g} ms, with 99 % confidence between {self.low_ms:.4g} and {self.high_ms:.4g} ms"


@dataclass(frozen=True)
class LatencyRatio:
    """The second report's percentile divided by the first report's. `low` and `high` are None without an interval."""

    ratio: float
    low: float | None
    high: float | None

    @property
    def is_slower(self) -> bool:
        """Whether the whole interval is above 1."""
        return self.low is not None and self.low > 1

    @property
    def is_faster(self) -> bool:
        """Whether the whole interval is below 1."""
        return self.high is not None and self.high < 1


def percentile(counts: Sequence[int], share: float, confidence: float = CONFIDENCE) -> LatencyPercentile | None:
    """Return a percentile of counts in the bins of `BOUNDS_MS`, or None if there are no calls."""
    total = sum(counts)
    if not total:
        return None
    summed = list(accumulate(counts))
    position = share * total
    place = next(number for number, below in enumerate(summed) if below >= position)
    below = summed[place] - counts[place]
    low_ms, high_ms = _bin_bounds_ms(place)
    value_ms = low_ms * (high_ms / low_ms) ** ((position - below) / counts[place])
    spread = NormalDist().inv_cdf((1 + confidence) / 2) * (total * share * (1 - share)) ** 0.5
    first, last = int(position - spread), int(position + spread) + 1
    if first < 1 or last > total:
        return LatencyPercentile(value_ms, None, None)
    places = [next(number for number, below in enumerate(summed) if below >= rank) for rank in (first, last)]
    if places[1] == len(BOUNDS_MS):
        return LatencyPercentile(value_ms, None, None)
    return LatencyPercentile(value_ms, _bin_bounds_ms(places[0])[0], _bin_bounds_ms(places[1])[1])


def latency_ratio(
    then: Sequence[int], now: Sequence[int], share: float, confidence: float = CONFIDENCE
) -> LatencyRatio | None:
    """Return the percentile of the calls in `now` divided by that of the calls in `then`.

    Returns None if one of the reports has no calls.
    """
    each = 1 - (1 - confidence) / 2
    a, b = percentile(then, share, each), percentile(now, share, each)
    if a is None or b is None:
        return None
    if a.low_ms is None or a.high_ms is None or b.low_ms is None or b.high_ms is None:
        return LatencyRatio(b.value_ms / a.value_ms, None, None)
    return LatencyRatio(b.value_ms / a.value_ms, b.low_ms / a.high_ms, b.high_ms / a.low_ms)


def _bin_bounds_ms(place: int) -> tuple[float, float]:
    """Return the bounds of a bin.

    The last bin has no upper bound, so it is treated as if it were as wide as the others.
    """
    low_ms = BOUNDS_MS[place - 1] if place else LOWEST_MS
    return low_ms, BOUNDS_MS[place] if place < len(BOUNDS_MS) else low_ms * 1.15
