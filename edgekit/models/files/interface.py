"""What every kind of file gives, and what the kinds share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from edgekit.core.errors import ModelError
from edgekit.models.files.integer_range import Grid
from edgekit.runner import input_vector
from edgekit.runner.bundle.manifest import TensorSpec

Run = Callable[[np.ndarray], np.ndarray]
Tensors = Sequence[Mapping[str, Any]]
"""Those of samples of several, as a manifest's `raw` lists them; none where a sample is one array."""


@dataclass(frozen=True)
class Opened:
    """A model with one answer, and one input or several that are joined in a vector (`runner/input_vector.py`).

    shape: of its input, the batch first; an open side is -1
    sized: gives the function from float32 inputs of exactly one shape to outputs, batch first; it raises whatever its
        library raises where the model cannot take that shape
    step: between two neighbouring values of a quantized output; 0 for floats
    grid: what its input can hold, where that has a scale
    grids: the same of several inputs, in the samples' order
    """

    shape: tuple[int, ...]
    sized: Callable[[tuple[int, ...]], Run]
    step: float = 0.0
    grid: Grid | None = None
    grids: tuple[Grid | None, ...] = ()


class OnDevice(NamedTuple):
    """A file as the runner opens it: its bytes by name, its inputs in its own order, its outputs in the task's."""

    files: dict[str, bytes]
    inputs: Sequence[TensorSpec]
    outputs: Sequence[TensorSpec]


class Taken(NamedTuple):
    """One of several inputs of a file: its shape has the batch first, an open side is -1."""

    name: str
    shape: Sequence[int]
    dtype: str


def check_ends(inputs: Sequence[str], outputs: int, tensors: Tensors = (), most: int = 1) -> None:
    """ModelError unless there are at most so many outputs, and one input or, by these names, those of the samples."""
    if not 1 <= outputs <= most:
        has = f"has {outputs} outputs; a model file"
        raise ModelError(
            f"{has} has one: export it with its scores alone"
            if most == 1
            else f"{has} of a detection has two: export it with boxes and logits alone"
        )
    if not tensors and len(inputs) != 1:
        raise ModelError(
            f"has {len(inputs)} inputs ({', '.join(inputs)}), and the samples are one array each; give the data's "
            "arrays by these names: x_train.NAME"
        )
    wanted = [each["name"] for each in tensors]
    if tensors and sorted(inputs) != sorted(wanted):
        raise ModelError(
            f"takes {', '.join(inputs)}, and the samples have the tensors {', '.join(wanted)}; give both the same names"
        )


def shape_of(inputs: Sequence[Taken], tensors: Tensors) -> tuple[int, ...]:
    """Of the one input, or of the vector that several are; ModelError where one is of another shape than its tensor."""
    if not tensors:
        return tuple(inputs[0].shape)
    shapes = {each["name"]: tuple(each["shape"]) for each in tensors}
    for each in inputs:
        own = tuple(each.shape[1:])
        if len(own) != len(shapes[each.name]) or any(a not in (-1, b) for a, b in zip(own, shapes[each.name])):
            raise ModelError(
                f"takes {each.name} as {list(each.shape)}, and the samples have {list(shapes[each.name])} each; give "
                "them as it takes them, the batch first"
            )
    return max(each.shape[0] for each in inputs), input_vector.width(list(shapes.values()))


def feed(x: np.ndarray, inputs: Sequence[Taken], tensors: Tensors) -> dict[str, np.ndarray]:
    """What each input takes of samples (n, …), by name, in their order; ModelError where an integer cannot hold it."""
    if not tensors:
        return {inputs[0].name: cast(x, inputs[0].dtype)}
    names = [each["name"] for each in tensors]
    parts = dict(zip(names, input_vector.split(x, [each["shape"] for each in tensors]), strict=True))
    return {each.name: cast(parts[each.name], each.dtype) for each in inputs}


def cast(x: np.ndarray, dtype: str) -> np.ndarray:
    """Float32 `x` as an input without a scale wants it; ModelError where an integer cannot hold a value."""
    wanted = np.dtype(dtype)
    if wanted.kind not in "fiu":
        raise ModelError(f"its input is {dtype}; a model file may take floats or integers")
    with np.errstate(invalid="ignore"):  # what does not fit is found below
        found = x.astype(wanted, copy=False)
    if wanted.kind != "f" and not np.array_equal(found, x):
        odd = float(x[found != x][0])
        raise ModelError(
            f"its input is {dtype}, and its preprocess makes values such as {odd:g}; leave out the steps that scale"
        )
    return found
