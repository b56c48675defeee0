"""A model that came as a file: the targets for which it can be converted, and the layout of its input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.core.errors import ConversionError
from edgekit.models import files
from edgekit.models.files import interface, task_outputs
from edgekit.models.files.compatibility import file_refusal
from edgekit.models.files.task_outputs import TaskOutputs
from edgekit.models.spec import Source, read_spec

QUANTIZED = "int8"
"""The only precision that is offered for a file that is quantized already. The file is used unchanged."""
FLOAT = "fp32"


@dataclass(frozen=True)
class ModelFile:
    """A model file.

    `input_shape` is (C, H, W) or (F,), whatever the layout in the file. `needed` describes the outputs that the task
    needs.
    """

    path: Path
    source: Source = field(hash=False)  # the head of a detector is a dictionary
    input_shape: tuple[int, ...]
    needed: TaskOutputs = field(default=task_outputs.ANY_OUTPUT, hash=False)

    @property
    def _module(self) -> Any:
        return files.module(self.source.kind)

    @property
    def is_quantized(self) -> bool:
        """Whether it is quantized already, so that it is used unchanged."""
        return self.source.integers

    def refusal(self, target: str) -> str:
        """Return why the file cannot be converted for a target; empty if it can."""
        if reason := self._module.UNSUPPORTED_TARGETS.get(target, ""):
            return f"{files.TITLES[self.source.kind]}: {reason}"
        if reason := file_refusal(self.path, self.source.kind, target):
            return f"{files.TITLES[self.source.kind]}: {reason}"
        if self.is_quantized and target != self.source.kind:
            return f"{files.TITLES[self.source.kind]}, quantized already: give the float model that it was made from"
        return ""

    @property
    def float_only(self) -> str:
        """Why the file is offered in fp32 only; empty if it is offered in other precisions or is quantized already."""
        reason_of = getattr(self._module, "float_only", None)
        return str(reason_of(self.path)) if reason_of else ""

    def convert(self, target: str, *options: Any) -> Any:
        """Convert the file for a target with the module of its format. Raises ConversionError if that is impossible."""
        if reason := self.refusal(target):
            raise ConversionError(reason)
        return getattr(self._module, target)(self.path, *options)

    def layout(self, shape: Sequence[int]) -> str:
        """Return the layout of an input of `shape` (batch first): NHWC, NCHW or NC."""
        return interface.find_layout(shape, self.sample_shape).order

    def arrange(self, x: np.ndarray, shape: Sequence[int]) -> np.ndarray:
        """Arrange samples (n, C, H, W) or (n, F) for an input of `shape`."""
        return interface.find_layout(shape, self.sample_shape).arrange(x.transpose(0, 2, 3, 1) if x.ndim == 4 else x)

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """Shape of a sample: (H, W, C), (F,) or (time, channels)."""
        return interface.channels_last(self.input_shape)


def read(model_folder: Path) -> ModelFile | None:
    """Return the model file of a saved network; None if it is a PyTorch network, exported or not."""
    spec = read_spec(model_folder)
    if spec.source is None or spec.source.kind == "exported":
        return None
    needed = task_outputs.for_task(spec.task, spec.num_classes, interface.channels_last(spec.input_shape), spec.head)
    return ModelFile(model_folder / spec.source.file, spec.source, spec.input_shape, needed)


def tensor_names(model_folder: Path) -> tuple[str, ...]:
    """Return the names of a saved network's inputs, in the order of a sample's tensors; empty if it has only one."""
    return tuple(each["name"] for each in read_spec(model_folder).tensors)


def offered_precisions(target: str, precisions: Sequence[str], model_folder: Path) -> tuple[str, ...]:
    """Return those of the target's precisions in which the saved network can be converted."""
    source_file = read(model_folder)
    if source_file is None:
        return tuple(precisions)
    if source_file.refusal(target):
        return ()
    if source_file.is_quantized:
        return (QUANTIZED,)
    return tuple(each for each in precisions if each == FLOAT) if source_file.float_only else tuple(precisions)
