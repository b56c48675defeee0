"""How much memory processes hold, and whether it grows."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from tests.serve.server import ROOT


def own_kb(process: int) -> int:
    """PSS of a process's heap and stacks, swapped out or not.

    That of mapped files is left out: it rises whenever another process that has mapped them ends.
    """
    text = Path(f"/proc/{process}/smaps_rollup").read_text()
    found = dict(re.findall(r"^(\w+):\s+(\d+) kB", text, re.MULTILINE))
    return int(found["Pss_Anon"]) + int(found["SwapPss"])


def sockets(processes: list[int]) -> int:
    """How many sockets processes have open."""
    count = 0
    for process in processes:
        for place in Path(f"/proc/{process}/fd").iterdir():
            try:
                count += str(place.readlink()).startswith("socket:")
            except FileNotFoundError:  # it was closed while we looked
                continue
    return count


HEAP = Path(__file__).parent / "heap"


def heap_environment(folder: Path) -> dict[str, str]:
    """The environment of a server that notes what its allocator has given out (`heap/sitecustomize.py`)."""
    return {"PYTHONPATH": f"{ROOT}{os.pathsep}{HEAP}", "EDGEKIT_HEAP": str(folder)}


def heap_growth_kb(folder: Path, processes: Iterable[int]) -> dict[int, float]:
    """By how many kB the memory in use of each of these processes grew in the second half of the time.

    Resident memory does not separate leaks from free pieces, which the allocator keeps between used ones. A server's
    helpers note theirs too, but end with its start: over their seconds, an import looks like a leak.
    """
    found = {}
    for process in processes:
        lines = (folder / str(process)).read_text().splitlines(keepends=True)
        rows = [tuple(map(float, line.split())) for line in lines if line[-1] == "\n"]
        seen = [(when, int(kb)) for when, kb in rows][:: max(1, len(rows) // 240)]
        found[process] = growth_kb(seen[len(seen) // 2 :])
    return found


class Watch(threading.Thread):
    """Notes the memory of processes every `interval_s`, until `end`."""

    def __init__(self, processes: Iterable[int], interval_s: float) -> None:
        super().__init__(daemon=True)
        self.samples: dict[int, list[tuple[float, int]]] = {process: [] for process in processes}
        self._interval_s = interval_s
        self._ended = threading.Event()

    def run(self) -> None:
        """See the class."""
        while not self._ended.wait(self._interval_s):
            for process, seen in self.samples.items():
                try:
                    seen.append((time.monotonic(), own_kb(process)))
                except OSError:  # it is gone, which is for others to notice
                    continue

    def end(self) -> dict[int, float]:
        """By how many kB each process grew in the second half of the time."""
        self._ended.set()
        self.join()
        return {process: growth_kb(seen[len(seen) // 2 :]) for process, seen in self.samples.items()}


def growth_kb(samples: Sequence[tuple[float, int]]) -> float:
    """What the trend of (seconds, kB) adds over their time.

    The slope is the median of those between any two samples (Theil and Sen). A single step, such as an arena that the
    allocator takes, or a buffer that is there for a moment, moves it little. What grows all the time is the slope.
    """
    times, sizes = np.array(samples, float).T
    first, second = np.triu_indices(len(times), 1)
    slope = np.median((sizes[second] - sizes[first]) / (times[second] - times[first]))
    return float(slope * (times[-1] - times[0]))
