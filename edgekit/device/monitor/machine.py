"""Metrics of this process and its machine. They are read when they are requested, at most once a second."""

from __future__ import annotations

import os
from time import monotonic, process_time

from edgekit.device.hardware import health
from edgekit.device.monitor.exposition import Family

PROCESS = "edgerun"
MAX_AGE_S = 1.0
"""Requests within this time get the last reading, because a reading takes milliseconds and, on some boards, starts a
process."""


class MachineMetrics:
    """Metrics that the kernel reports of this process and its machine. `root` is for tests."""

    def __init__(self, root: str | os.PathLike[str] = "/") -> None:
        self._root = root
        self._read_at = -MAX_AGE_S
        self._reading: health.HealthReading | None = None

    def figures(self) -> list[Family]:
        """Return the metrics of this process and its board. A family is absent if the kernel does not report it."""
        labels = {"process": PROCESS}
        rows: list[tuple[str, str, str, dict[str, str], float | None]] = [
            ("process_cpu_seconds_total", "counter", "Processor time of the process", labels, process_time()),
            (
                "process_resident_bytes",
                "gauge",
                "Resident memory of the process",
                labels,
                self._current().resident_bytes,
            ),
        ]
        return [*_families(rows), *self.board()]

    def board(self) -> list[Family]:
        """Return only temperature, clock and throttling."""
        reading = self._current()
        mhz = reading.frequency_mhz
        return _families(
            [
                ("temperature_celsius", "gauge", "Of the processor's hottest zone", {}, reading.temperature_c),
                ("clock_hertz", "gauge", "Mean of the cores of the process", {}, None if mhz is None else mhz * 1e6),
                (
                    "throttled",
                    "gauge",
                    "Whether the board has lowered its clock, for heat or power",
                    {},
                    reading.throttled,
                ),
                ("under_voltage", "gauge", "Whether the board's supply is too weak", {}, reading.under_voltage),
            ]
        )

    def _current(self) -> health.HealthReading:
        now = monotonic()
        if self._reading is None or now - self._read_at >= MAX_AGE_S:
            self._reading, self._read_at = health.read_health(self._root), now
        return self._reading


def _families(rows: list[tuple[str, str, str, dict[str, str], float | None]]) -> list[Family]:
    return [
        Family(f"edgekit_{name}", kind, text, [("", labels, value)])
        for name, kind, text, labels, value in rows
        if value is not None
    ]
