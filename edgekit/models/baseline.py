"""The baseline for calls: a network by PyTorch eager, a file by its own interpreter, whatever else looks at it."""

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
    """What opens it anew for inferences of `x` (1, C, H, W), (1, F) or (1, time, channels), as variants are timed.

    `folder` holds the saved network, `module` is that network.
    """
    if spec.is_torch:
        return lambda: eager_call(copy.deepcopy(module), x)
    assert spec.source is not None
    path, kind = folder / spec.source.file, spec.source.kind
    sample = x.transpose(0, 2, 3, 1) if x.ndim == 4 else x
    shape = interface.channels_last(spec.input_shape)
    needed = task_outputs.for_task(spec.task, spec.num_classes, shape)
    return lambda: standalone.open(path, kind, shape, threads, spec.tensors, needed).call(sample)
