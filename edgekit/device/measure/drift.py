"""Check the windows of a soak for saturation, drift, throttling and memory growth. Only recorded windows are used.

Each finding is True, False, or None if the data does not suffice. It comes with a sentence and values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from edgekit.device.measure import intervals
from edgekit.device.measure.soak import SoakWindow

MIN_WINDOWS = 9
"""Smallest number of windows, three for each third. With fewer, thirds would differ by chance in one case of three."""
MARGIN = 0.05
"""A change of p50 by a smaller share than this does not count as drift."""
CONFIDENCE = 0.95
SLOWEST_CLOCK = 0.9
"""If two consecutive windows are below this share of the first window's frequency, the processor was slowed down."""
MIN_GROWTH_BYTES = 1_000_000
MIN_GROWTH = 0.01


@dataclass(frozen=True)
class SoakFinding:
    """The result of one check."""

    is_present: bool | None
    """Whether the problem is present; None if the data does not suffice."""
    words: str
    figures: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as a dictionary for JSON."""
        return {"found": self.is_present, "words": self.words, **self.figures}


def soak_findings(windows: Sequence[SoakWindow], rate_per_s: float) -> dict[str, SoakFinding]:
    """Return the four findings, in the order in which they should be read."""
    return {
        "saturated": check_saturation(windows, rate_per_s),
        "throttled": check_throttling(windows),
        "drifted": check_drift(windows),
        "grew": check_memory_growth(windows),
    }


def check_saturation(windows: Sequence[SoakWindow], rate_per_s: float) -> SoakFinding:
    """Check whether calls came faster than they were answered.

    That is so if many calls are waiting at the end, or far more in the last third of the windows than in the first.
    """
    if not windows:
        return SoakFinding(None, "nothing was measured")
    calls, seconds = sum(each.calls for each in windows), sum(each.seconds for each in windows)
    waiting = windows[-1].waiting
    figures = {"answered_per_s": calls / seconds, "waiting": waiting}
    third = len(windows) // 3
    growing = False
    if third:
        first, last = ([each.waiting for each in part] for part in (windows[:third], windows[-third:]))
        growing = min(last) > max(max(first), 5, 0.05 * calls / len(windows))
    if waiting > max(5, 0.02 * (calls + waiting)) or growing:
        sentence = (
            f"the device cannot keep up with {rate_per_s:,.5g} per s: it answered {calls / seconds:,.5g} per s, and "
            f"{waiting:,} calls were waiting at the end"
        )
        return SoakFinding(True, sentence, figures)
    return SoakFinding(False, f"it kept up with {rate_per_s:,.5g} per s", figures)


def check_drift(windows: Sequence[SoakWindow]) -> SoakFinding:
    """Check whether p50 in the last third of the windows differs from that in the first third by more than the margin.

    The confidence interval of the ratio is found by resampling windows (see `intervals`). The latency drifted if the
    whole interval lies beyond the margin, and did not drift if the whole interval lies within it.
    """
    if len(windows) < MIN_WINDOWS:
        return SoakFinding(None, f"too short to say: {len(windows)} windows, {MIN_WINDOWS} are needed")
    third = len(windows) // 3
    first, last = (np.array([max(each.p50_ms, 1e-9) for each in part]) for part in (windows[:third], windows[-third:]))
    ratio, low, high = _ratio(last, first)
    figures = {"p50_ratio": ratio, "p50_ratio_low": low, "p50_ratio_high": high}
    sentence = f"p50 of the last third is {ratio:.3f} times the first's ({low:.3f} to {high:.3f})"
    if low > 1 + MARGIN or high < 1 - MARGIN:
        return SoakFinding(True, f"it became {'slower' if ratio > 1 else 'faster'}: {sentence}", figures)
    if low > 1 - MARGIN and high < 1 + MARGIN:
        return SoakFinding(False, f"it stayed the same: {sentence}", figures)
    return SoakFinding(None, f"too uneven to say: {sentence}", figures)


def check_throttling(windows: Sequence[SoakWindow]) -> SoakFinding:
    """Check whether the processor was slowed down, according to the kernel or to the clock's frequency."""
    warmest = max((each.temperature_c for each in windows if each.temperature_c is not None), default=None)
    clocks = [each.frequency_mhz for each in windows if each.frequency_mhz is not None and each.governor]
    figures: dict[str, Any] = {"warmest_c": warmest}
    heat = "" if warmest is None else f"; {warmest:.0f} °C at most"
    if clocks:
        figures.update(first_mhz=clocks[0], lowest_mhz=min(clocks))
    flagged = [each for each in windows if each.throttled]
    if flagged:
        sentence = f"it throttled, or lacked voltage, in {len(flagged)} of {len(windows)} windows, first after "
        return SoakFinding(True, f"{sentence}{flagged[0].start_s:.0f} s{heat}", figures)
    slow = [mhz < SLOWEST_CLOCK * clocks[0] for mhz in clocks]
    if any(one and two for one, two in zip(slow, slow[1:])):
        governor = next(each.governor for each in windows if each.governor)
        sentence = f"its clock fell from {clocks[0]:,.0f} to {min(clocks):,.0f} MHz (governor {governor}){heat}"
        return SoakFinding(True, sentence, figures)
    if not clocks and all(each.throttled is None for each in windows):
        return SoakFinding(None, f"the kernel shows neither throttling nor a governed clock{heat}", figures)
    return SoakFinding(False, f"no throttling{heat}", figures)


def check_memory_growth(windows: Sequence[SoakWindow]) -> SoakFinding:
    """Check whether resident memory still grew in the second half of the soak, by more than 1 MB and 1 %.

    The growth is that of a line whose slope is the median of the slopes between all pairs of windows (Theil 1950; Sen
    1968, "Estimates of the Regression Coefficient Based on Kendall's Tau"), which is robust to outliers. Memory must
    also have grown in both parts of the second half. A single step, such as allocators take, lies in only one of them,
    so it does not count as growth.
    """
    known = [(each.start_s + each.seconds, each.resident_bytes) for each in windows if each.resident_bytes is not None]
    if not known:
        return SoakFinding(None, "the kernel does not show resident memory")
    if len(known) < MIN_WINDOWS:
        return SoakFinding(None, f"too short to say: {len(known)} windows, {MIN_WINDOWS} are needed")
    half = known[len(known) // 2 :]
    at_s, resident = (np.array(column, float) for column in zip(*half))
    one, two = np.triu_indices(len(half), 1)
    slope = float(np.median((resident[two] - resident[one]) / (at_s[two] - at_s[one])))
    first, middle, last = resident[[0, len(resident) // 2, -1]].tolist()
    growth = slope * (at_s[-1] - at_s[0])
    figures = {"resident_mb": last / 1e6, "mb_per_hour": slope * 3600 / 1e6}
    sentence = f"{last / 1e6:,.1f} MB at the end, {slope * 3600 / 1e6:+,.1f} MB per hour in the second half"
    steps = min(middle - first, last - middle)
    if growth > max(MIN_GROWTH_BYTES, MIN_GROWTH * first) and steps > 0.1 * growth:
        return SoakFinding(True, f"it grows: {sentence}", figures)
    return SoakFinding(False, f"steady: {sentence}", figures)


def _ratio(last: np.ndarray, first: np.ndarray) -> tuple[float, float, float]:
    """Return the median of `last` over the median of `first`, with the bounds of its bootstrap interval."""
    generator = np.random.default_rng(intervals.SEED)
    medians = [
        np.median(part[generator.integers(0, len(part), (intervals.RESAMPLES, len(part)))], axis=1)
        for part in (last, first)
    ]
    tail = intervals.tail_probability(CONFIDENCE, len(first))
    low, high = np.quantile(medians[0] / medians[1], (tail, 1 - tail))
    return float(np.median(last) / np.median(first)), float(low), float(high)
