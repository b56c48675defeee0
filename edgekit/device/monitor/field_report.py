"""Field report: what a bundle answered on a device, how fast, on which machine, and whether it has drifted.

It is one JSON file of some 10 kB, however many answers there were, and is rewritten every minute and at the end.
`edgekit compare` and notebook 08 read it. Latencies are stored as counts for the bounds in `histogram.py`, in the form
[[index, count], …], so that reports can be added up. `FORMAT` is the value of the key `format`.
"""

from __future__ import annotations

import atexit
import errno
import json
import os
import threading
import time
import warnings
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.device.hardware import emulation, health
from edgekit.device.monitor.counts import Counts
from edgekit.device.monitor.exposition import BoundedLabels
from edgekit.device.monitor.histogram import BOUNDS_MS, percentile_ms
from edgekit.runner.errors import ResourceError
from edgekit.runner.files import make_folder, write_atomically

if TYPE_CHECKING:
    import numpy as np

    from edgekit.runner.errors import RunnerError

KIND, FORMAT = "edgekit field report", 1
EVERY_S = 60.0
MAX_READINGS = 120
"""Largest number of readings of the machine in a report. When there are more, every second one is dropped, and further
ones are taken half as often."""
PERCENTILES = (0.5, 0.9, 0.99)
DISK_FULL = (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC))


class FieldReport:
    """An observer that writes a field report. The file is always complete. A full disk does not stop the model.

    Parameters
    ----------
    model : Model
        The opened model. If a monitor observes it too, the monitor's verdict and sketch (see `sketch.py`) become part
        of the report.
    path : str or path-like
        The file. A missing folder is created.
    every_s : float
        Seconds between two writes.
    root : str or path-like
        The root of the file system for readings of the machine, for tests.

    Raises
    ------
    ResourceError
        The file cannot be written.
    """

    def __init__(
        self,
        model: Any,
        path: str | os.PathLike[str],
        every_s: float = EVERY_S,
        root: str | os.PathLike[str] = "/",
    ) -> None:
        self._path, self._every_s, self._root, self._model = Path(path), every_s, root, model
        self._counts, self._bounded = Counts(), BoundedLabels()
        self._answered = 0
        self._labels: dict[str, int] = {}
        self._readings: list[dict[str, Any]] = []
        self._stride = 1
        self._last_counts = [0] * (len(BOUNDS_MS) + 1)
        self._started, self._started_at = time.monotonic(), time.time()
        self._first, self._facts = health.read_health(root), _facts(model)
        self._end, self._failed, self._process = threading.Event(), False, os.getpid()
        self._monitor: Any = None
        try:
            make_folder(self._path.parent)
            self._write()
        except OSError as error:
            if error.errno in DISK_FULL:  # a device that restarts must answer nevertheless
                self._warn_once(error)
            else:
                raise ResourceError(
                    f"report: {path}: {error.strerror or error}; name a file that can be written"
                ) from None
        self._thread = threading.Thread(target=self._work, name="edgerun-report", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def answered(self, raw: np.ndarray, outputs: np.ndarray, prediction: Any) -> None:
        """Count an answer."""
        if not self._answered:
            self._monitor = self._find_monitor()
        self._counts.answered(raw, outputs, prediction)
        self._answered += 1
        label = getattr(prediction, "label", None)
        if label is not None:
            name = self._bounded(label)
            self._labels[name] = self._labels.get(name, 0) + 1

    def refused(self, error: RunnerError) -> None:
        """Count a refused sample: `invalid` if the sample is at fault, else `failed`."""
        if self._monitor is None:
            self._monitor = self._find_monitor()
        self._counts.refused(error)

    def dropped(self, count: int) -> None:
        """Count dropped windows of a stream."""
        self._counts.dropped(count)

    def close(self) -> None:
        """Write the report for the last time."""
        atexit.unregister(self.close)
        if os.getpid() == self._process and not self._end.is_set():  # a child must not touch its parent's report
            self._end.set()
            self._thread.join(10.0)
            self._try_to_write()

    def report(self) -> dict[str, Any]:
        """Return the contents of the file."""
        seconds = time.monotonic() - self._started
        last = health.read_health(self._root)
        return {
            "kind": KIND,
            "format": FORMAT,
            **self._facts,
            "from": _utc(self._started_at),
            "to": _utc(self._started_at + seconds),
            "seconds": seconds,
            "answered": self._answered,
            "refused": self._counts.refusals,
            "dropped": self._counts.dropped_,
            "labels": dict(self._labels),
            "latency_ms": {part: _latency(*counts) for part, counts in self._counts.latencies().items()},
            "machine": {
                "first": self._first.to_dict(),
                "last": last.to_dict(),
                "throttled": health.throttled_between(self._first, last),
                "looks": list(self._readings),
            },
            **self._monitored(),
        }

    def _find_monitor(self) -> Any:
        """Return the first observer with a verdict, or None."""
        monitors = (each for each in self._model.observers if hasattr(each, "sketch") and hasattr(each, "verdict"))
        return next(monitors, None)

    def _monitored(self) -> dict[str, Any]:
        if self._monitor is None:
            return {}
        return {"verdict": _plain(self._monitor.verdict()), "sketch": self._monitor.sketch()}

    def _work(self) -> None:
        ticks = 0
        while not self._end.wait(self._every_s):
            if ticks % self._stride == 0:
                self._record_reading()
            ticks += 1
            self._try_to_write()

    def _record_reading(self) -> None:
        """Record the state of the machine, and the model's p50 since the last reading."""
        reading = health.read_health(self._root)
        counts = list(self._counts.lists["execute"])
        since = [now - earlier for now, earlier in zip(counts, self._last_counts)]
        self._last_counts = counts
        self._readings.append(
            {
                "at_s": round(time.monotonic() - self._started, 3),
                "answered": sum(since),
                "execute_p50_ms": percentile_ms(since, 0.5),
                "temperature_c": reading.temperature_c,
                "frequency_mhz": reading.frequency_mhz,
                "throttled": reading.throttled,
                "resident_bytes": reading.resident_bytes,
            }
        )
        if len(self._readings) > MAX_READINGS:
            self._readings, self._stride = self._readings[1::2], 2 * self._stride

    def _try_to_write(self) -> None:
        try:
            self._write()
        except Exception as error:  # such as a full disk, or a monitor that another thread is changing
            self._warn_once(error)

    def _warn_once(self, error: Exception) -> None:
        if not self._failed:
            with suppress(RuntimeWarning):  # the program may turn warnings into errors
                warnings.warn(f"report: {self._path}: {error}; trying again later", RuntimeWarning, stacklevel=3)
        self._failed = True

    def _write(self) -> None:
        text = json.dumps(_finite(self.report()), sort_keys=True, separators=(",", ":"), allow_nan=False)
        write_atomically(self._path, text.encode())


def _latency(counts: list[int], total_ms: float) -> dict[str, Any]:
    latency: dict[str, Any] = {f"p{100 * fraction:g}": percentile_ms(counts, fraction) for fraction in PERCENTILES}
    latency["mean"] = total_ms / sum(counts)
    return {**latency, "counts": [[number, count] for number, count in enumerate(counts) if count]}


def _facts(model: Any) -> dict[str, Any]:
    from edgekit.device.measure import bench

    manifest, backend = model.manifest, model.backend
    names = ("name", "version", "target", "variant", "task")
    return {
        "bundle": {**{name: getattr(manifest, name) for name in names}, "identity": model.bundle.identity},
        "interpreter": {
            "name": backend.name,
            "version": backend.version,
            "threads": model.threads,
            "device": model.device,
        },
        "device": {**bench.machine_facts(), "emulator": emulation.emulator() or ""},
    }


def _plain(verdict: Any) -> Any:
    """Convert dataclasses and tuples for JSON."""
    if hasattr(verdict, "__dataclass_fields__"):
        return {name: _plain(getattr(verdict, name)) for name in verdict.__dataclass_fields__}
    return [_plain(each) for each in verdict] if isinstance(verdict, (list, tuple)) else verdict


def _finite(value: Any) -> Any:
    """Convert numbers for JSON: infinity and NaN become null."""
    if isinstance(value, dict):
        return {str(name): _finite(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(each) for each in value]
    if isinstance(value, float):
        return value if value - value == 0 else None
    return value


def _utc(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(min(max(seconds, 0.0), 253402300799.0)))
