"""How the baseline is timed: a network by PyTorch eager, a model file by its own interpreter."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import numpy as np
from torch import nn

from edgekit.models.eager import eager_call
from edgekit.models.files import interface, standalone, task_outputs
from edgekit.models.spec import ModelSpec


def opener(
    folder: Path, module: nn.Module, spec: ModelSpec, x: np.ndarray, threads: int = 1
) -> Callable[[], Callable[[], object]]:
    """Return a function that opens the baseline anew and returns a second function, which runs one inference.

    The second function is the one to be timed.

    Parameters
    ----------
    folder
        The folder of the saved network.
    module
        The same network, loaded.
    x
        The network's input for one sample: (1, C, H, W), (1, F) or (1, time, channels).
    threads
        The number of threads with which a model file is run. A network runs with the number already set in PyTorch.
    """
    if spec.is_torch:
        return lambda: eager_call(copy.deepcopy(module), x)
    assert spec.source is not None
    path, kind = folder / spec.source.file, spec.source.kind
    sample = x.transpose(0, 2, 3, 1) if x.ndim == 4 else x
    shape = interface.channels_last(spec.input_shape)
    needed = task_outputs.for_task(spec.task, spec.num_classes, shape, spec.head)
    return lambda: standalone.open(path, kind, shape, threads, spec.tensors, needed).call(sample)
