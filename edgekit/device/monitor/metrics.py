"""Figures of models for Prometheus: times by part, refusals, dropped windows, batches, the process and the machine."""

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
    """Counts what models answer, and shows it where Prometheus finds it. Several models may share one.

    Counting takes a microsecond or less a call, and no lock. A thread of its own writes the file or answers scrapers.
    It closes by itself when the interpreter ends.

    Parameters
    ----------
    where
        A file that ends in `.prom`, for node-exporter's textfile collector; or `"127.0.0.1:9100"`, a port of this
        machine that answers `/metrics`, 0 for any free one. None: only `text` shows the figures.
    every_s
        Seconds between two writes of the file.
    on_problem
        Called with a line where the file cannot be written; the default is a RuntimeWarning.

    Raises
    ------
    InputError
        `where` is neither, its folder is missing, its port is taken, or other machines could reach it.
    """

    def __init__(
        self,
        where: str | os.PathLike[str] | None = None,
        every_s: float = 5.0,
        on_problem: Callable[[str], object] = _warn,
    ) -> None:
        self._lock = RLock()  # of those that show and close; no answer takes it
        self._process = os.getpid()
        self._gone: dict[Labels, Counts] = {}
        self._live: dict[Counts, tuple[Labels, weakref.ref[Any], bool]] = {}
        self._bounded = exposition.BoundedLabels()
        self._machine = MachineMetrics()
        self._on_problem: Callable[[str], object] | None = on_problem
        if where is not None and not isinstance(where, (str, os.PathLike)):
            raise InputError(f"metrics: got {where!r}; use a file that ends in .prom, or 127.0.0.1:PORT")
        self._shown = None if where is None else _open(os.fspath(where), self.text, every_s, on_problem)
        self.where: str | None = None if self._shown is None else self._shown.where
        """The file, or the address to scrape."""
        if self._shown is not None:
            atexit.register(self.close)

    def add(self, model: Any, is_last: bool = False) -> None:
        """Count what a model answers from now on.

        Parameters
        ----------
        model
            An opened bundle.
        is_last
            Close all of this as soon as the model's observers are closed, or nobody holds the model any more.
        """
        manifest = model.manifest
        name = self._bounded(f"{manifest.name}\n{manifest.version}")
        labels = (exposition.OTHER,) * 2 if name == exposition.OTHER else (manifest.name, manifest.version)
        counts = Counts(self._ended)
        with self._lock:
            self._live[counts] = labels, weakref.ref(model), is_last
        model.observers.add(counts)
        weakref.finalize(model, counts.close).atexit = False

    def families(self) -> list[Family]:
        """All figures as they are now, those of other observers of the models among them."""
        with self._lock:
            sums = {labels: Counts() for labels in (*self._gone, *(each[0] for each in self._live.values()))}
            for labels, counts in (*self._gone.items(), *((each[0], counts) for counts, each in self._live.items())):
                sums[labels].add(counts)
            models = [(labels, model) for labels, reference, _ in self._live.values() if (model := reference())]
        found = self._machine.figures()
        for labels, counts in sums.items():
            found += counts.figures(_label_dict(labels))
        for labels, model in models:
            found += self._of_observers(_label_dict(labels), model)
        return found

    def text(self) -> bytes:
        """The same in Prometheus's text format."""
        return exposition.render(self.families())

    def close(self) -> None:
        """Write the last figures, free the port; models go on, and are counted no more by what is shown."""
        if os.getpid() != self._process:  # a child has no thread that writes, and its lock may stay taken
            return
        with self._lock:
            shown, self._shown = self._shown, None
        if shown is not None:
            atexit.unregister(self.close)
            shown.close()

    def _ended(self, counts: Counts) -> None:
        with self._lock:
            labels, _, is_last = self._live.pop(counts)
            self._gone.setdefault(labels, Counts()).add(counts)
        if is_last:
            self.close()

    def _of_observers(self, labels: dict[str, str], model: Any) -> list[Family]:
        """Those of the model's other observers that have figures; they bear the model's labels as well."""
        found: list[Family] = []
        for observer in model.observers:
            if isinstance(observer, Counts) or not hasattr(observer, "figures"):
                continue
            try:
                for family in observer.figures():
                    samples = [(suffix, {**labels, **own}, value) for suffix, own, value in family.samples]
                    found.append(replace(family, samples=samples))
            except Exception as error:  # the other figures are shown all the same
                told, self._on_problem = self._on_problem, None
                if told is not None:
                    told(f"metrics: {type(observer).__name__} shows nothing ({type(error).__name__}: {error})")
        return found


def _open(where: str, page: Callable[[], bytes], every_s: float, on_problem: Callable[[str], object]) -> Any:
    if where.endswith(".prom"):
        return Textfile(Path(where), page, every_s, on_problem)
    from edgekit.device.monitor import metrics_server  # brings http.server, which a file does not need

    address = metrics_server.parse_address(where)
    if address is None:
        raise InputError(f"metrics: got {where!r}; use a file that ends in .prom, or 127.0.0.1:PORT")
    return metrics_server.MetricsServer(*address, page)


def _label_dict(labels: Labels) -> dict[str, str]:
    return dict(zip(("model", "version"), labels))
