"""Wrap a model of another framework as a PyTorch module, so that code for networks can run it.

PyTorch does not see the layers of such a model, so it cannot be trained. Its costs are counted elsewhere and passed in.
"""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from edgekit.models.files import interface, module, task_outputs
from edgekit.models.files.interface import Run, Tensors
from edgekit.models.files.op_count import OpCount
from edgekit.models.files.task_outputs import TaskOutputs
from edgekit.runner.native_stderr import quiet_native

NOTHING = OpCount()
THREADS = 1
"""The number of threads with which every interpreter is timed. TensorFlow lets a process set it only once."""


def network(
    path: Path, kind: str, input_shape: tuple[int, ...], needed: TaskOutputs, counted: OpCount, tensors: Tensors = ()
) -> nn.Module:
    """Return the file as a network with one layer, called `model`."""
    return nn.Sequential(OrderedDict(model=FileModule(path, kind, input_shape, needed, counted, tensors))).eval()


class FileModule(nn.Module):
    """The file at `path` as a layer: (n, C, H, W) or (n, F) float32 -> all outputs joined in one array, (n, …).

    The outputs are in the order that the task expects. `input_shape` is (C, H, W) or (F,). A copy of the layer opens
    the file again. Samples are passed one by one, unless the file gives the same answers for several at once.
    """

    def __init__(
        self,
        path: Path,
        kind: str,
        input_shape: tuple[int, ...],
        needed: TaskOutputs,
        counted: OpCount = NOTHING,
        tensors: Tensors = (),
    ) -> None:
        super().__init__()
        self.path, self.kind, self.input_shape, self.needed = path, kind, input_shape, needed
        self.tensors = tensors
        self.counted = counted
        with quiet_native():
            self._opened = module(kind).open(path, THREADS, tensors, needed)
        self._layout = interface.find_layout(self._opened.shape, interface.channels_last(input_shape))
        self._least = max(self._opened.shape[0], 1)
        self._alone: Run = self._opened.for_shape((self._least, *self._layout.sides))
        self._many: tuple[Run, int] | None = None

    def forward(self, x: Tensor) -> Tensor:
        samples = x.detach().cpu().numpy()
        arranged = self._layout.arrange(samples.transpose(0, 2, 3, 1) if samples.ndim == 4 else samples)
        if len(arranged) <= self._least:
            return torch.from_numpy(task_outputs.run_batch(self._alone, arranged, self._least, self.needed))
        if self._many is None:
            self._many = task_outputs.fastest_run(
                self._opened, self._layout, arranged[: task_outputs.BATCH], self.needed
            )
        run, size = self._many
        starts = range(0, len(arranged), size)
        return torch.from_numpy(
            np.concatenate(
                [task_outputs.run_batch(run, arranged[start : start + size], size, self.needed) for start in starts]
            )
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> FileModule:
        return FileModule(self.path, self.kind, self.input_shape, self.needed, self.counted, self.tensors)
