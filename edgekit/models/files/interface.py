"""What every kind of file gives, and what the kinds share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from edgekit.core.errors import ModelError
from edgekit.models.files.integer_range import Grid

Run = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Opened:
    """A model with one input and one output.

    shape: of its input, the batch first; an open side is -1
    sized: gives the function from float32 inputs of exactly one shape to outputs, batch first; it raises whatever its
        library raises where the model cannot take that shape
    step: between two neighbouring values of a quantized output; 0 for floats
    grid: what its input can hold, where that has a scale
    """

    shape: tuple[int, ...]
    sized: Callable[[tuple[int, ...]], Run]
    step: float = 0.0
    grid: Grid | None = None


def check_one_input_one_output(inputs: int, outputs: int) -> None:
    """ModelError unless there is one input and one output."""
    if inputs != 1 or outputs != 1:
        raise ModelError(
            f"has {inputs} inputs and {outputs} outputs; a model file has one of each: export it with its scores alone"
        )


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
