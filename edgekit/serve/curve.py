"""How long a model takes for n samples at once, measured on this machine, and what follows for batching."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from time import perf_counter_ns

SIZES = (1, 2, 4, 8, 16)
"""Batches that are tried; other numbers of samples are split into these."""
GAIN = 0.10
"""A batch has to save this share of a sample's time against the size before it."""
HAND_OVER_MS = 0.05
"""What it costs a request to wait in the queue for others, in CPU time; a batch that saves less loses (measured)."""
INLINE_MS = 1.0
"""Below this, a call costs less than handing it to a thread and back (0.13 ms) delays those that wait."""
ROUNDS = 25
LONGEST_MEASUREMENT_S = 2.0


@dataclass(frozen=True)
class Curve:
    """Median milliseconds of one call, by the number of its samples; 1 is always there."""

    ms: Mapping[int, float]

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Sizes of calls for a request of many samples, ascending: each saves `GAIN` against the one before."""
        kept = [1]
        for size in sorted(self.ms):
            if size > 1 and self.ms[size] / size <= (1 - GAIN) * self.ms[kept[-1]] / kept[-1]:
                kept.append(size)
        return tuple(kept)

    @cached_property
    def pays(self) -> bool:
        """Whether requests that came together are worth joining: a sample saves more than the queue costs it."""
        return any(self.ms[1] - self.ms[size] / size > HAND_OVER_MS for size in self.sizes)

    @property
    def is_inline(self) -> bool:
        """Whether a single call is too short to be handed to a thread."""
        return self.ms[1] < INLINE_MS

    @property
    def gain(self) -> float:
        """Samples per second of the best size, as a multiple of those of single calls."""
        return max(self.ms[1] * size / self.ms[size] for size in self.sizes)

    def take(self, waiting: int, slack_ms: float | None = None) -> int:
        """How many of those that wait go next: the largest size that pays and still meets the earliest deadline."""
        if not self.pays:
            return 1
        fitting = [size for size in self.sizes if size <= waiting and (slack_ms is None or self.ms[size] <= slack_ms)]
        return fitting[-1] if fitting else 1

    def total_ms(self, count: int) -> float:
        """What `count` samples take, in the sizes that pay."""
        if count <= 1:
            return self.ms[1] * count
        total = 0.0
        for size in reversed(self.sizes):
            calls, count = divmod(count, size)
            total += calls * self.ms[size]
        return total

    def verdict(self) -> str:
        """One sentence for the log and the page."""
        single = f"one sample takes {self.ms[1]:.3g} ms"
        if not self.pays:
            return f"{single}; joining requests to batches does not pay here and is off"
        return f"{single}; batches of {self.sizes[-1]} give {self.gain:.2f} times as many samples a second"


def measure(call: Callable[[int], Callable[[], object] | None]) -> Curve:
    """The curve of a model; `call(n)` gives a function that runs n samples, None where n cannot be run.

    Sizes take turns, so that a disturbance meets all of them alike; medians of at most `ROUNDS` rounds.
    """
    calls = {size: made for size in SIZES if (made := call(size)) is not None}
    for run in calls.values():
        run()
    taken: dict[int, list[int]] = {size: [] for size in calls}
    begun = perf_counter_ns()
    for _ in range(ROUNDS):
        for size, run in calls.items():
            started = perf_counter_ns()
            run()
            taken[size].append(perf_counter_ns() - started)
        if perf_counter_ns() - begun > LONGEST_MEASUREMENT_S * 1e9:
            break
    return Curve({size: sorted(times)[len(times) // 2] / 1e6 for size, times in taken.items()})
