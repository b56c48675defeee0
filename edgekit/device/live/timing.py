"""Rates and latencies of the last answers, by part."""

from __future__ import annotations

from collections import deque
from typing import Any

PARTS = ("read", "prepare", "model", "rules")
"""From the arrival of a frame to the model's turn, making the model's input, the model's call, answer and rules."""
KEPT = 512
RATE_S = 10.0
"""The rate is that of the answers in this many seconds."""


class Timing:
    """The latencies of the last `KEPT` answers, and their rate. One thread adds; others may read."""

    def __init__(self) -> None:
        self.count = 0
        self._rows: deque[tuple[float, ...]] = deque(maxlen=KEPT)
        self._times: deque[float] = deque(maxlen=KEPT)

    def add(self, now_s: float, parts_ms: tuple[float, ...]) -> None:
        """Add an answer: `time.monotonic()`, and the milliseconds of each of `PARTS`."""
        self.count += 1
        self._times.append(now_s)
        self._rows.append(parts_ms)

    def rate(self, now_s: float) -> float:
        """Return the answers per second."""
        times = [each for each in tuple(self._times) if now_s - each <= RATE_S]
        if len(times) < 2:
            return 0.0
        return (len(times) - 1) / max(1e-3, (times[-1] if now_s - times[-1] < 1.0 else now_s) - times[0])

    def to_dict(self) -> dict[str, Any]:
        """Return p50 and p99 in milliseconds of each part, and of `total`, for JSON; empty without answers."""
        rows = tuple(self._rows)
        if not rows:
            return {}
        columns = dict(zip(PARTS, zip(*rows)))
        columns["total"] = tuple(sum(row) for row in rows)
        return {name: {"p50": _share(column, 0.5), "p99": _share(column, 0.99)} for name, column in columns.items()}


def _share(values: tuple[float, ...], share: float) -> float:
    ranked = sorted(values)
    return round(ranked[min(len(ranked) - 1, int(share * len(ranked)))], 3)
