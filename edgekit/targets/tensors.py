"""What every operator of a converted file gives for given inputs, as float32. One format, one file, each of which has

    read(folder, files, inputs) -> list[Operator]     in the order of execution, the file's input first

Operators that only work on constants (weights that are decompressed or dequantized) are left out. The interpreters run
here without the fusing that inner tensors do not outlive, so a fault of their fastest kernels alone is not seen here.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgekit.core.errors import ConversionError
from edgekit.runner.native_stderr import quiet_native
from edgekit.targets.jobs import Files

INPUT = "INPUT"


@dataclass(frozen=True, eq=False)
class Operator:
    """`inputs` are places in the list that it is read in; `values` (n, …) what comes out, integers dequantized.

    `span` is the lowest and highest value that its integers can hold; None for floats. `activation` what the file
    computes as part of the operator, such as `RELU6`.
    """

    name: str
    kind: str
    inputs: tuple[int, ...]
    values: np.ndarray
    span: tuple[float, float] | None = None
    activation: str = ""


def read(target: str, folder: Path, files: Files, inputs: np.ndarray) -> list[Operator]:
    """`inputs` (n, C, H, W) or (n, F) float32; ConversionError where the interpreter refuses the file."""
    if files.input.layout == "NHWC":
        inputs = np.ascontiguousarray(inputs.transpose(0, 2, 3, 1))
    format = importlib.import_module(f"edgekit.targets.{target}.tensors")
    try:
        with quiet_native():
            found: list[Operator] = format.read(folder, files, inputs)
        return found
    except Exception as error:  # ONNX Runtime's errors share no base class but Exception
        raise ConversionError(f"{target}: the inner tensors of {folder.name} cannot be read: {error}") from None


def stacked(rows: Sequence[Sequence[np.ndarray]]) -> list[np.ndarray]:
    """Of each tensor the values of all samples, (n, …), from a row of tensors (1, …) for each sample."""
    return [np.concatenate([np.atleast_1d(row[place]) for row in rows]) for place in range(len(rows[0]))]


def span(scale: float, zero_point: int, dtype: np.dtype) -> tuple[float, float]:
    """What an integer tensor of one scale can hold."""
    limits = np.iinfo(dtype)
    return (limits.min - zero_point) * scale, (limits.max - zero_point) * scale
