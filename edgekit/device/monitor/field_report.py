"""A report from the field: what a bundle answered on a device, how fast, on what machine, whether it is still right.

One JSON file, rewritten each minute and at the end, of some 10 kB whatever the number of answers. `FORMAT` is its
`format`. `edgekit compare` and notebook 08 read it. Latencies are counts by the bounds of `histogram.py`, as
[[place, count], …], so that reports can be added up.
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
"""At the machine, in a report: with more, every second one is left out, and the next are half as frequent."""
PERCENTILES = (0.5, 0.9, 0.99)
DISK_FULL = (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC))


class FieldReport:
    """An observer that writes a report. The file is always whole; a disk that is full costs the report alone.

    Parameters
    ----------
    model
        The opened model, which may have other observers: a monitor's sketch and verdict go into the report.
    path
        The file; its folder is made where it is missing.
    every_s
        Between two writes.
    root
        Of the file system that the machine's readings are taken from, for tests.

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
        self._looks: list[dict[str, Any]] = []
        self._stride = 1
        self._seen = [0] * (len(BOUNDS_MS) + 1)
        self._begun, self._begun_at = time.monotonic(), time.time()
        self._first, self._facts = health.read_health(root), _facts(model)
        self._end, self._failed, self._process = threading.Event(), False, os.getpid()
        self._monitor: Any = None
        try:
            make_folder(self._path.parent)
            self._write()
        except OSError as error:
            if error.errno in DISK_FULL:  # a device that starts again answers all the same
                self._tell(error)
            else:
                raise ResourceError(f"report: {path}: {error.strerror or error}; name a file to write") from None
        self._thread = threading.Thread(target=self._work, name="edgerun-report", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def answered(self, raw: np.ndarray, outputs: np.ndarray, prediction: Any) -> None:
        """Count one answer."""
        if not self._answered:
            self._monitor = self._find_monitor()
        self._counts.answered(raw, outputs, prediction)
        self._answered += 1
        label = getattr(prediction, "label", None)
        if label is not None:
            name = self._bounded(label)
            self._labels[name] = self._labels.get(name, 0) + 1

    def refused(self, error: RunnerError) -> None:
        """Count it: `invalid` is the sample's fault, `failed` any other."""
        if self._monitor is None:
            self._monitor = self._find_monitor()
        self._counts.refused(error)

    def dropped(self, count: int) -> None:
        """Count windows of a stream that nobody answered."""
        self._counts.dropped(count)

    def close(self) -> None:
        """Write the last time."""
        atexit.unregister(self.close)
        if os.getpid() == self._process and not self._end.is_set():  # a child leaves its parent's report alone
            self._end.set()
            self._thread.join(10.0)
            self._try()

    def report(self) -> dict[str, Any]:
        """What the file holds."""
        seconds = time.monotonic() - self._begun
        last = health.read_health(self._root)
        return {
            "kind": KIND,
            "format": FORMAT,
            **self._facts,
            "from": _utc(self._begun_at),
            "to": _utc(self._begun_at + seconds),
            "seconds": seconds,
            "answered": self._answered,
            "refused": self._counts.refusals,
            "dropped": self._counts.dropped_,
            "labels": dict(self._labels),
            "latency_ms": {part: _latency(*found) for part, found in self._counts.latencies().items()},
            "machine": {
                "first": self._first.to_dict(),
                "last": last.to_dict(),
                "throttled": health.throttled_between(self._first, last),
                "looks": list(self._looks),
            },
            **self._monitored(),
        }

    def _find_monitor(self) -> Any:
        """The first observer that judges; None where none does."""
        judges = (each for each in self._model.observers if hasattr(each, "sketch") and hasattr(each, "verdict"))
        return next(judges, None)

    def _monitored(self) -> dict[str, Any]:
        if self._monitor is None:
            return {}
        return {"verdict": _plain(self._monitor.verdict()), "sketch": self._monitor.sketch()}

    def _work(self) -> None:
        looks = 0
        while not self._end.wait(self._every_s):
            if looks % self._stride == 0:
                self._look()
            looks += 1
            self._try()

    def _look(self) -> None:
        """The machine now, and the model's p50 since the look before."""
        reading = health.read_health(self._root)
        counts = list(self._counts.lists["execute"])
        since = [now - before for now, before in zip(counts, self._seen)]
        self._seen = counts
        self._looks.append(
            {
                "at_s": round(time.monotonic() - self._begun, 3),
                "answered": sum(since),
                "execute_p50_ms": percentile_ms(since, 0.5),
                "temperature_c": reading.temperature_c,
                "frequency_mhz": reading.frequency_mhz,
                "throttled": reading.throttled,
                "resident_bytes": reading.resident_bytes,
            }
        )
        if len(self._looks) > MAX_READINGS:
            self._looks, self._stride = self._looks[1::2], 2 * self._stride

    def _try(self) -> None:
        try:
            self._write()
        except Exception as error:  # a full disk, or a monitor in the middle of an answer: the next time is near
            self._tell(error)

    def _tell(self, error: Exception) -> None:
        if not self._failed:
            with suppress(RuntimeWarning):  # where warnings are errors
                warnings.warn(f"report: {self._path}: {error}; it is tried again", RuntimeWarning, stacklevel=3)
        self._failed = True

    def _write(self) -> None:
        text = json.dumps(_finite(self.report()), sort_keys=True, separators=(",", ":"), allow_nan=False)
        write_atomically(self._path, text.encode())


def _latency(counts: list[int], total_ms: float) -> dict[str, Any]:
    found: dict[str, Any] = {f"p{100 * share:g}": percentile_ms(counts, share) for share in PERCENTILES}
    found["mean"] = total_ms / sum(counts)
    return {**found, "counts": [[number, seen] for number, seen in enumerate(counts) if seen]}


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
    """Dataclasses and tuples for JSON."""
    if hasattr(verdict, "__dataclass_fields__"):
        return {name: _plain(getattr(verdict, name)) for name in verdict.__dataclass_fields__}
    return [_plain(each) for each in verdict] if isinstance(verdict, (list, tuple)) else verdict


def _finite(value: Any) -> Any:
    """Numbers that JSON has; an infinity becomes null, and so does what is no number."""
    if isinstance(value, dict):
        return {str(name): _finite(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(each) for each in value]
    if isinstance(value, float):
        return value if value - value == 0 else None
    return value


def _utc(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(min(max(seconds, 0.0), 253402300799.0)))
