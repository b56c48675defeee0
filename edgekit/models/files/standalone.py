"""A model file on its own interpreter with nothing around it: how one that came as a file is timed.

What ships is timed on the runner's own backend, so the file that it was made of is too. PyTorch's view of a file
(`as_module.py`) takes 60 to 140 µs of a call, which is more than a small model does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgekit.device.measure.execution import timed_call
from edgekit.models.files import interface, module
from edgekit.models.files.interface import Layout, Run, Tensors
from edgekit.models.files.task_outputs import ANY_OUTPUT, TaskOutputs
from edgekit.runner.backends import Backend, open_backend
from edgekit.runner.errors import BackendError
from edgekit.runner.native_stderr import quiet_native


@dataclass(frozen=True)
class StandaloneModel:
    """A file, opened for one sample at a time: float32 (1, *layout.sides) in, float32 (1, …) out.

    `backend` is the runner's, where that runs it.
    """

    run: Run
    layout: Layout
    backend: Backend | None = None

    def call(self, x: np.ndarray) -> Callable[[], np.ndarray]:
        """One inference of a sample (1, …), channels last, as its preprocess leaves it, as variants are timed."""
        run, given = self.run, np.ascontiguousarray(self.layout.arrange(x))
        return (lambda: run(given)) if self.backend is None else timed_call(self.backend, given)


def open(
    path: Path,
    kind: str,
    sample: Sequence[int],
    threads: int = 1,
    tensors: Tensors = (),
    needed: TaskOutputs = ANY_OUTPUT,
) -> StandaloneModel:
    """The file at `path` for samples of that shape, channels last.

    It runs on the runner's backend. Some files run in their own library instead: formats without a runner backend, such
    as Keras, and files that the backend cannot open unmodified, such as one with an output of unknown shape.
    """
    with quiet_native():
        backend = _backend(path, kind, threads, tensors, needed)
        if backend is not None:
            return StandaloneModel(backend.run, interface.find_layout(backend.shape, sample), backend)
        opened = module(kind).open(path, threads, tensors, needed)
        placed = interface.find_layout(opened.shape, sample)
        return StandaloneModel(opened.sized((1, *placed.sides)), placed)


def _backend(path: Path, kind: str, threads: int, tensors: Tensors, needed: TaskOutputs) -> Backend | None:
    on_device = getattr(module(kind), "on_device", None)
    if on_device is None:
        return None
    try:
        files, found, results = on_device(path, tensors, needed)
        by_name = {each.name: each for each in found}
        sources = [by_name[each["name"]] for each in tensors] or found
        return open_backend(kind, files, sources, results, threads, module(kind).INTERPRETER)
    except BackendError:
        return None
