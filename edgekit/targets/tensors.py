"""Read the inner tensors of a converted file as float32, and match them with the tensors of the network.

The module `tensors` of each target has

    read(folder, files, inputs) -> list[FileTensor]     in the order of execution, the file's input first

Operators that only work on constants (weights that are decompressed or dequantized) are left out. The interpreters run
without fusing operators, because fused inner tensors are not stored. A fault that only their fastest kernels have is
therefore not found.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgekit.core.errors import ConversionError
from edgekit.runner.native_stderr import quiet_native
from edgekit.targets.jobs import ConvertedFiles

INPUT = "INPUT"


@dataclass(frozen=True, eq=False)
class FileTensor:
    """The output of an operator in a file.

    Attributes
    ----------
    name, kind
        The operator's name and kind.
    inputs
        Indices of its inputs in the list to which it belongs.
    values
        The output (n, …); integers are dequantized.
    span
        The lowest and highest value that its integers can represent; None for floats.
    activation
        What the file computes as part of the operator, such as `RELU6`.
    """

    name: str
    kind: str
    inputs: tuple[int, ...]
    values: np.ndarray
    span: tuple[float, float] | None = None
    activation: str = ""


def read(target: str, folder: Path, files: ConvertedFiles, inputs: np.ndarray) -> list[FileTensor]:
    """Read the inner tensors of a file for `inputs` (n, C, H, W) or (n, F), float32.

    Raises ConversionError if the interpreter cannot run the file.
    """
    if files.input.layout == "NHWC":
        inputs = np.ascontiguousarray(inputs.transpose(0, 2, 3, 1))
    format = importlib.import_module(f"edgekit.targets.{target}.tensors")
    try:
        with quiet_native():
            inner: list[FileTensor] = format.read(folder, files, inputs)
        return inner
    except Exception as error:  # ONNX Runtime's errors have no common base class but Exception
        raise ConversionError(f"{target}: the inner tensors of {folder.name} cannot be read: {error}") from None


def stack_samples(rows: Sequence[Sequence[np.ndarray]]) -> list[np.ndarray]:
    """Return an array (n, …) of all samples for each tensor. `rows` has a list of tensors (1, …) for each sample."""
    return [np.concatenate([np.atleast_1d(row[index]) for row in rows]) for index in range(len(rows[0]))]


def integer_range(scale: float, zero_point: int, dtype: np.dtype) -> tuple[float, float]:
    """Return the lowest and highest value that an integer tensor with one scale can represent."""
    limits = np.iinfo(dtype)
    return (limits.min - zero_point) * scale, (limits.max - zero_point) * scale


EQUAL_DB = 200.0
"""Reported for equal tensors, because JSON has no infinity."""
MIN_GAIN_DB = 0.5
"""A later tensor of the network is chosen as the match only if it is closer by this much."""


@dataclass(frozen=True, eq=False)
class NetworkTensor:
    """A tensor that the PyTorch network computes.

    `layer` is the module that computes it, for example `stem.0`, or `blocks.1.forward (add)` for operations in the code
    of a parent module. `inputs` are indices in the list to which the tensor belongs.
    """

    layer: str
    operator: str
    inputs: tuple[int, ...]
    values: np.ndarray


@dataclass(frozen=True)
class Similarity:
    """Cosine of two tensors, as a mean over samples, and SNR in dB; 0 and -200 for tensors that cannot be compared."""

    cosine: float
    snr_db: float

    def describe(self) -> str:
        """Describe the similarity, for example `cosine 0.9998, SNR 34.1 dB`."""
        cosine = f"{self.cosine:.4f}" if self.cosine < 0.9999 else f"{self.cosine:.6g}"
        return f"cosine {cosine}" + (", equal" if self.snr_db >= EQUAL_DB else f", SNR {self.snr_db:.1f} dB")


IndicesByShape = dict[tuple[int, ...], list[int]]
NO_SIMILARITY = Similarity(0.0, -EQUAL_DB)


@dataclass(frozen=True)
class Match:
    """The index of the network's tensor that is closest to an operator's output, and how similar the two are."""

    node: int
    similarity: Similarity


def cosines(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return the cosine of each sample, (n,), for two arrays (n, …); 1 if both are all zero, 0 if only one is."""
    one, other = (array.reshape(len(array), -1).astype(np.float64) for array in (one, other))
    lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    both_zero = ~one.any(axis=1) & ~other.any(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        cosine: np.ndarray = np.where(lengths > 0, np.sum(one * other, axis=1) / lengths, both_zero)
    return cosine.clip(-1, 1)


def match_operators(nodes: Sequence[NetworkTensor], operators: Sequence[FileTensor]) -> list[Match]:
    """Return for each operator the closest tensor of the network by SNR; if several are equal, the earliest."""
    rows = [node.values.reshape(len(node.values), -1).astype(np.float64) for node in nodes]
    powers = [float(np.sum(row**2)) for row in rows]
    by_shape: IndicesByShape = {}
    for index, row in enumerate(rows):
        by_shape.setdefault(row.shape, []).append(index)
    return [_nearest(operator, rows, powers, by_shape) for operator in operators]


def _nearest(operator: FileTensor, rows: list[np.ndarray], powers: list[float], by_shape: IndicesByShape) -> Match:
    best: tuple[float, int, np.ndarray] | None = None
    for values in _orders(operator.values):
        if not np.isfinite(values).all():
            continue
        for index in by_shape.get(values.shape, ()):
            snr_db = _snr_db(powers[index], float(np.sum((rows[index] - values) ** 2)))
            if best is None or snr_db > best[0] + MIN_GAIN_DB:
                best = snr_db, index, values
    if best is None:
        return Match(next(iter(by_shape.values()))[0], NO_SIMILARITY)
    snr_db, index, values = best
    return Match(index, Similarity(float(cosines(rows[index], values).mean()), snr_db))


def _orders(values: np.ndarray) -> list[np.ndarray]:
    """Return the values as (n, size) in both possible orders of axes: unchanged, and with the last axis first."""
    flat = [values.reshape(len(values), -1).astype(np.float64)]
    if values.ndim > 2:
        flat.append(np.moveaxis(values, -1, 1).reshape(len(values), -1).astype(np.float64))
    return flat


def _snr_db(power: float, noise: float) -> float:
    if noise == 0:
        return EQUAL_DB
    return min(EQUAL_DB, 10 * math.log10(power / noise)) if power else -EQUAL_DB
