"""What a piece of work took: by the clock that nobody can set, and of the processor."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass


@dataclass(frozen=True)
class Start:
    """When a piece of work began; seconds of two clocks that only differences mean something of."""

    clock_s: float
    cpu_s: float

    @classmethod
    def now(cls) -> Start:
        """This moment."""
        return cls(time.monotonic(), cpu_seconds())

    def so_far(self) -> dict[str, float]:
        """`seconds` since then, and `cpu_seconds` that the processor has worked for it."""
        now = Start.now()
        return {"seconds": round(now.clock_s - self.clock_s, 3), "cpu_seconds": round(now.cpu_s - self.cpu_s, 3)}


def cpu_seconds() -> float:
    """What the processor has done for this process: all its threads, and its children that have ended."""
    found = os.times()
    return found.user + found.system + found.children_user + found.children_system
