"""What the kernel has counted since boot: the processor's time, who used it, and how often this process had to wait.

A count is None if the kernel does not show it.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass

from edgekit.device.hardware import health
from edgekit.runner import cpu
from edgekit.runner.bundle import sha256

TRIES = 3
BLOCK, BLOCKS = bytes(4096), 64
"""The yardstick hashes this block this many times, in about a millisecond. The block stays in the first-level cache."""


@dataclass(frozen=True)
class Counters:
    """The counters at one moment, with times in seconds.

    `busy_s` and `steal_s` are sums over the cores that this process may use. `own_s` is the processor time of the
    measured processes.
    """

    at_s: float
    own_s: float
    busy_s: float | None
    steal_s: float | None
    preempted: int | None  # involuntary context switches of the measured processes
    quota_stops: int | None


def read_counters(children: bool = False, root: str | os.PathLike[str] = "/") -> Counters:
    """Read all counters. With `children`, child processes that have ended are included; see times(2), getrusage(2)."""
    times = os.times()
    busy_s, steal_s = _machine_seconds(root)
    return Counters(
        at_s=time.perf_counter(),
        own_s=time.process_time() + (times.children_user + times.children_system if children else 0.0),
        busy_s=busy_s,
        steal_s=steal_s,
        preempted=_preempted(children),
        quota_stops=health.quota_stops(root),
    )


def load_average() -> float | None:
    """Return the load average of one minute, or None."""
    try:
        return os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    except OSError:
        return None


def yardstick_ms() -> float:
    """Return how many milliseconds a piece of work takes that is always the same.

    This is the fastest of a few tries, so that an interruption does not count.
    """
    times_ns = []
    for _ in range(TRIES):
        start_ns = time.perf_counter_ns()
        digest = sha256.new(len(BLOCK) * BLOCKS)
        for _ in range(BLOCKS):
            digest.update(BLOCK)
        times_ns.append(time.perf_counter_ns() - start_ns)
    return min(times_ns) / 1e6


def _machine_seconds(root: str | os.PathLike[str]) -> tuple[float | None, float | None]:
    """Return the (busy, stolen) seconds of proc_stat(5). Waiting for I/O counts as idle; user time includes guests."""
    if not hasattr(os, "sysconf"):
        return None, None
    names = {f"cpu{number}" for number in cpu.usable_cores()}
    try:
        with open(os.path.join(root, "proc/stat"), encoding="ascii", errors="replace") as stream:
            rows = [line.split() for line in stream]
        ticks = [[int(word) for word in row[1:9]] for row in rows if row and row[0] in names]
        per_s = os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError):
        return None, None
    if not ticks or any(len(row) < 8 for row in ticks):
        return None, None
    busy = sum(user + nice + system + irq + softirq for user, nice, system, _, _, irq, softirq, _ in ticks)
    return busy / per_s, sum(row[7] for row in ticks) / per_s


def _preempted(children: bool) -> int | None:
    if sys.platform == "win32":
        return None
    import resource

    switches = resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw
    return switches + (resource.getrusage(resource.RUSAGE_CHILDREN).ru_nivcsw if children else 0)
