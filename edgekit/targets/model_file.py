"""A model that came as a file, as a target meets it: what it can be made into, and how its input stands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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
"""What a quantized file is called: it is taken as it is."""
FLOAT = "fp32"


@dataclass(frozen=True)
class ModelFile:
    """The file at `path`; `input_shape` is (C, H, W) or (F,), whatever order it has itself.

    `needed` says what it gives, and in which order its outputs come.
    """

    path: Path
    source: Source
    input_shape: tuple[int, ...]
    needed: TaskOutputs = task_outputs.ANY_OUTPUT

    @property
    def _module(self) -> Any:
        return files.module(self.source.kind)

    @property
    def is_quantized(self) -> bool:
        """Whether it is quantized already, so that nothing is left to do but to take it."""
        return self.source.integers

    def refusal(self, target: str) -> str:
        """Why nothing can be made of it for this target; empty where something can."""
        if reason := self._module.UNSUPPORTED_TARGETS.get(target, ""):
            return f"{files.TITLES[self.source.kind]}: {reason}"
        if reason := file_refusal(self.path, self.source.kind, target):
            return f"{files.TITLES[self.source.kind]}: {reason}"
        if self.is_quantized and target != self.source.kind:
            return f"{files.TITLES[self.source.kind]}, quantized already: give the float model that it was made of"
        return ""

    @property
    def float_only(self) -> str:
        """Why it is taken in fp32 alone, besides being quantized already; empty elsewhere."""
        found = getattr(self._module, "float_only", None)
        return str(found(self.path)) if found else ""

    def make(self, target: str, *how: Any) -> Any:
        """What `edgekit.models.files` makes of it for the target."""
        if reason := self.refusal(target):
            raise ConversionError(reason)
        return getattr(self._module, target)(self.path, *how)

    def layout(self, shape: Sequence[int]) -> str:
        """NHWC, NCHW or NC: how an input of that shape (batch first) stands."""
        return interface.find_layout(shape, self.sample_shape).order

    def arrange(self, x: np.ndarray, shape: Sequence[int]) -> np.ndarray:
        """Samples (n, C, H, W) or (n, F) as an input of that shape takes them."""
        return interface.find_layout(shape, self.sample_shape).arrange(x.transpose(0, 2, 3, 1) if x.ndim == 4 else x)

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """(H, W, C), (F,) or (time, channels)."""
        return interface.channels_last(self.input_shape)


def read(model_folder: Path) -> ModelFile | None:
    """The file that the saved network is; None for a network of PyTorch's, exported or not."""
    spec = read_spec(model_folder)
    if spec.source is None or spec.source.kind == "exported":
        return None
    needed = task_outputs.for_task(spec.task, spec.num_classes, interface.channels_last(spec.input_shape))
    return ModelFile(model_folder / spec.source.file, spec.source, spec.input_shape, needed)


def tensor_names(model_folder: Path) -> tuple[str, ...]:
    """Of the saved network's several inputs, in the samples' order; none where it has one."""
    return tuple(each["name"] for each in read_spec(model_folder).tensors)


def offered_precisions(target: str, precisions: Sequence[str], model_folder: Path) -> tuple[str, ...]:
    """Those of the target's precisions that can be made of the saved network."""
    given = read(model_folder)
    if given is None:
        return tuple(precisions)
    if given.refusal(target):
        return ()
    if given.is_quantized:
        return (QUANTIZED,)
    return tuple(each for each in precisions if each == FLOAT) if given.float_only else tuple(precisions)
