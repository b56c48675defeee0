"""Run a model file in its own interpreter without PyTorch around it, to time a baseline that came as a file.

Variants are timed on the runner's backends, so the file from which they were made is timed on them as well. The module
that wraps a file for PyTorch (`as_module.py`) adds 60 to 140 µs to a call, which is more than a small model takes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgekit.core.execution import timed_call
from edgekit.models.files import interface, module
from edgekit.models.files.interface import Layout, Run, Tensors
from edgekit.models.files.task_outputs import ANY_OUTPUT, TaskOutputs
from edgekit.runner.backends import Backend, open_backend
from edgekit.runner.errors import BackendError
from edgekit.runner.native_stderr import quiet_native


@dataclass(frozen=True)
class StandaloneModel:
    """A file opened for one sample at a time: `run` maps float32 (1, *layout.sides) to float32 (1, …).

    `backend` is the runner's backend, or None if the file runs in the library of its format.
    """

    run: Run
    layout: Layout
    backend: Backend | None = None

    def call(self, x: np.ndarray) -> Callable[[], np.ndarray]:
        """Return a function that runs one inference of a preprocessed sample (1, …), channels last, to be timed."""
        run, arranged = self.run, np.ascontiguousarray(self.layout.arrange(x))
        return (lambda: run(arranged)) if self.backend is None else timed_call(self.backend, arranged)


def open(
    path: Path,
    kind: str,
    sample: Sequence[int],
    threads: int = 1,
    tensors: Tensors = (),
    needed: TaskOutputs = ANY_OUTPUT,
) -> StandaloneModel:
    """Open the file at `path` for samples of shape `sample`, channels last.

    The file runs on the runner's backend if possible. Formats without a backend, such as Keras, and files that the
    backend cannot open unmodified, such as one with an output of unknown shape, run in their own library.
    """
    with quiet_native():
        backend = _backend(path, kind, threads, tensors, needed)
        if backend is not None:
            return StandaloneModel(backend.run, interface.find_layout(backend.shape, sample), backend)
        opened = module(kind).open(path, threads, tensors, needed)
        layout = interface.find_layout(opened.shape, sample)
        return StandaloneModel(opened.for_shape((1, *layout.sides)), layout)


def _backend(path: Path, kind: str, threads: int, tensors: Tensors, needed: TaskOutputs) -> Backend | None:
    on_device = getattr(module(kind), "on_device", None)
    if on_device is None:
        return None
    try:
        files, inputs, results = on_device(path, tensors, needed)
        by_name = {each.name: each for each in inputs}
        sources = [by_name[each["name"]] for each in tensors] or inputs
        return open_backend(kind, files, sources, results, threads, module(kind).INTERPRETER, head=needed.head)
    except BackendError:
        return None
