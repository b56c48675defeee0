"""This process and the machine under it, as figures. Read only when somebody asks, and at most once a second."""

from __future__ import annotations

import os
from time import monotonic, process_time

from edgekit.device.hardware import health
from edgekit.device.monitor.exposition import Family

PROCESS = "edgerun"
MAX_AGE_S = 1.0
"""A reading takes some milliseconds, and on some boards a process: whoever asks more often gets the one before."""


class MachineMetrics:
    """What of it the kernel shows; `root` is for tests."""

    def __init__(self, root: str | os.PathLike[str] = "/") -> None:
        self._root = root
        self._read_at = -MAX_AGE_S
        self._reading: health.HealthReading | None = None

    def figures(self) -> list[Family]:
        """For the exposition: this process and its board; a family is absent where the kernel says nothing of it."""
        mine = {"process": PROCESS}
        used: list[tuple[str, str, str, dict[str, str], float | None]] = [
            ("process_cpu_seconds_total", "counter", "Processor time of the process", mine, process_time()),
            ("process_resident_bytes", "gauge", "Resident memory of the process", mine, self._seen().resident_bytes),
        ]
        return [*_families(used), *self.board()]

    def board(self) -> list[Family]:
        """Temperature, clock and throttling alone."""
        seen = self._seen()
        mhz = seen.frequency_mhz
        return _families(
            [
                ("temperature_celsius", "gauge", "Of the processor's hottest zone", {}, seen.temperature_c),
                ("clock_hertz", "gauge", "Mean of the cores of the process", {}, None if mhz is None else mhz * 1e6),
                (
                    "throttled",
                    "gauge",
                    "Whether the board has lowered its clock, for heat or power",
                    {},
                    seen.throttled,
                ),
                ("under_voltage", "gauge", "Whether the board's supply is too weak", {}, seen.under_voltage),
            ]
        )

    def _seen(self) -> health.HealthReading:
        now = monotonic()
        if self._reading is None or now - self._read_at >= MAX_AGE_S:
            self._reading, self._read_at = health.read_health(self._root), now
        return self._reading


def _families(found: list[tuple[str, str, str, dict[str, str], float | None]]) -> list[Family]:
    return [
        Family(f"edgekit_{name}", kind, text, [("", labels, value)])
        for name, kind, text, labels, value in found
        if value is not None
    ]
