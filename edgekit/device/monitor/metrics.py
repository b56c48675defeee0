"""Metrics of models for Prometheus: times by part, refused samples, dropped windows, batches, process and machine."""

from __future__ import annotations

import atexit
import os
import warnings
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import RLock
from typing import Any

from edgekit.device.monitor import exposition
from edgekit.device.monitor.counts import Counts
from edgekit.device.monitor.exposition import Family
from edgekit.device.monitor.machine import MachineMetrics
from edgekit.device.monitor.textfile import Textfile
from edgekit.runner.errors import InputError

Labels = tuple[str, str]
"""A model's name and version."""


def _warn(text: str) -> None:
    warnings.warn(text, RuntimeWarning, stacklevel=2)


class Metrics:
    """Counts what models answer, and exposes it to Prometheus. Several models may share one object.

    Counting takes a microsecond or less per call, without a lock. A separate thread writes the file or answers
    scrapers. The object closes itself when Python exits.

    Parameters
    ----------
    where : str or path-like, optional
        A file that ends in `.prom`, for node-exporter's textfile collector; or an address of this machine such as
        `"127.0.0.1:9100"`, where `/metrics` is then served. Port 0 takes a free one. By default, the metrics are only
        available from `text`.
    every_s : float
        Seconds between two writes of the file.
    on_problem : callable
        Called with a line if the file cannot be written. By default a RuntimeWarning is issued.

    Raises
    ------
    InputError
        `where` is neither of these, the file's folder is missing, the port is in use, or other machines could reach it.
    """

    def __init__(
        self,
        where: str | os.PathLike[str] | None = None,
        every_s: float = 5.0,
        on_problem: Callable[[str], object] = _warn,
    ) -> None:
        self._lock = RLock()  # held to expose metrics and to close, never to count an answer
        self._process = os.getpid()
        self._closed_counts: dict[Labels, Counts] = {}
        self._open_counts: dict[Counts, tuple[Labels, weakref.ref[Any], bool]] = {}
        self._bounded = exposition.BoundedLabels()
        self._machine = MachineMetrics()
        self._on_problem: Callable[[str], object] | None = on_problem
        if where is not None and not isinstance(where, (str, os.PathLike)):
            raise InputError(f"metrics: got {where!r}; use a file that ends in .prom, or 127.0.0.1:PORT")
        self._output = None if where is None else _open(os.fspath(where), self.text, every_s, on_problem)
        self.where: str | None = None if self._output is None else self._output.where
        """The file, or the address to scrape."""
        if self._output is not None:
            atexit.register(self.close)

    def add(self, model: Any, is_last: bool = False) -> None:
        """Count what a model answers from now on.

        Parameters
        ----------
        model : Model
            An opened bundle.
        is_last : bool
            Close this object as soon as the model's observers are closed, or the model is garbage-collected.
        """
        manifest = model.manifest
        name = self._bounded(f"{manifest.name}\n{manifest.version}")
        labels = (exposition.OTHER,) * 2 if name == exposition.OTHER else (manifest.name, manifest.version)
        counts = Counts(self._on_closed)
        with self._lock:
            self._open_counts[counts] = labels, weakref.ref(model), is_last
        model.observers.add(counts)
        weakref.finalize(model, counts.close).atexit = False

    def families(self) -> list[Family]:
        """Return all metrics as they are now, including those of the models' other observers."""
        with self._lock:
            sums = {
                labels: Counts() for labels in (*self._closed_counts, *(each[0] for each in self._open_counts.values()))
            }
            for labels, counts in (
                *self._closed_counts.items(),
                *((each[0], counts) for counts, each in self._open_counts.items()),
            ):
                sums[labels].add(counts)
            models = [(labels, model) for labels, reference, _ in self._open_counts.values() if (model := reference())]
        families = self._machine.figures()
        for labels, counts in sums.items():
            families += counts.figures(_label_dict(labels))
        for labels, model in models:
            families += self._observer_families(_label_dict(labels), model)
        return families

    def text(self) -> bytes:
        """Return the metrics in Prometheus's text format."""
        return exposition.render(self.families())

    def close(self) -> None:
        """Write the last values and free the port. The models continue, but their metrics are no longer exposed."""
        if os.getpid() != self._process:  # a forked child has no writing thread, and its lock may stay held
            return
        with self._lock:
            output, self._output = self._output, None
        if output is not None:
            atexit.unregister(self.close)
            output.close()

    def _on_closed(self, counts: Counts) -> None:
        with self._lock:
            labels, _, is_last = self._open_counts.pop(counts)
            self._closed_counts.setdefault(labels, Counts()).add(counts)
        if is_last:
            self.close()

    def _observer_families(self, labels: dict[str, str], model: Any) -> list[Family]:
        """Return the metrics of the model's other observers, with the model's name and version as further labels."""
        families: list[Family] = []
        for observer in model.observers:
            if isinstance(observer, Counts) or not hasattr(observer, "figures"):
                continue
            try:
                for family in observer.figures():
                    samples = [(suffix, {**labels, **own}, value) for suffix, own, value in family.samples]
                    families.append(replace(family, samples=samples))
            except Exception as error:  # the other metrics must still be exposed
                report, self._on_problem = self._on_problem, None
                if report is not None:
                    report(f"metrics: {type(observer).__name__} gave no metrics ({type(error).__name__}: {error})")
        return families


def _open(where: str, page: Callable[[], bytes], every_s: float, on_problem: Callable[[str], object]) -> Any:
    if where.endswith(".prom"):
        return Textfile(Path(where), page, every_s, on_problem)
    from edgekit.device.monitor import metrics_server  # imports http.server, which a file does not need

    address = metrics_server.parse_address(where)
    if address is None:
        raise InputError(f"metrics: got {where!r}; use a file that ends in .prom, or 127.0.0.1:PORT")
    return metrics_server.MetricsServer(*address, page)


def _label_dict(labels: Labels) -> dict[str, str]:
    return dict(zip(("model", "version"), labels))
