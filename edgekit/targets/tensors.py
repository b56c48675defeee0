"""What every operator of a converted file gives for given inputs, as float32. One format, one file, each of which has

    read(folder, files, inputs) -> list[Operator]     in the order of execution, the file's input first

Operators that only work on constants (weights that are decompressed or dequantized) are left out. The interpreters run
here without the fusing that inner tensors do not outlive, so a fault of their fastest kernels alone is not seen here.
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


def read(target: str, folder: Path, files: ConvertedFiles, inputs: np.ndarray) -> list[FileTensor]:
    """`inputs` (n, C, H, W) or (n, F) float32; ConversionError where the interpreter refuses the file."""
    if files.input.layout == "NHWC":
        inputs = np.ascontiguousarray(inputs.transpose(0, 2, 3, 1))
    format = importlib.import_module(f"edgekit.targets.{target}.tensors")
    try:
        with quiet_native():
            found: list[FileTensor] = format.read(folder, files, inputs)
        return found
    except Exception as error:  # ONNX Runtime's errors share no base class but Exception
        raise ConversionError(f"{target}: the inner tensors of {folder.name} cannot be read: {error}") from None


def stack_samples(rows: Sequence[Sequence[np.ndarray]]) -> list[np.ndarray]:
    """Of each tensor the values of all samples, (n, …), from a row of tensors (1, …) for each sample."""
    return [np.concatenate([np.atleast_1d(row[place]) for row in rows]) for place in range(len(rows[0]))]


def integer_range(scale: float, zero_point: int, dtype: np.dtype) -> tuple[float, float]:
    """What an integer tensor of one scale can hold."""
    limits = np.iinfo(dtype)
    return (limits.min - zero_point) * scale, (limits.max - zero_point) * scale


EQUAL_DB = 200.0
"""Reported for equal tensors: JSON has no infinity."""
MIN_GAIN_DB = 0.5
"""A later tensor of the network is taken for the counterpart only if it is so much nearer."""


@dataclass(frozen=True, eq=False)
class NetworkTensor:
    """A tensor that the PyTorch network computes.

    `layer` is the module at work, `stem.0`; where a parent's own code computes, `blocks.1.forward (add)`. `inputs` are
    places in the list that it stands in.
    """

    layer: str
    operator: str
    inputs: tuple[int, ...]
    values: np.ndarray


@dataclass(frozen=True)
class Similarity:
    """Cosine of two tensors, mean over samples, and SNR in dB; of tensors that cannot be compared 0 and -200."""

    cosine: float
    snr_db: float

    def describe(self) -> str:
        """`cosine 0.9998, SNR 34.1 dB`."""
        cosine = f"{self.cosine:.4f}" if self.cosine < 0.9999 else f"{self.cosine:.6g}"
        return f"cosine {cosine}" + (", equal" if self.snr_db >= EQUAL_DB else f", SNR {self.snr_db:.1f} dB")


Places = dict[tuple[int, ...], list[int]]
NO_SIMILARITY = Similarity(0.0, -EQUAL_DB)


@dataclass(frozen=True)
class Match:
    """The index of a network's tensor, and its similarity."""

    node: int
    similarity: Similarity


def cosines(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Of each sample, (n,), for two arrays (n, …); 1 where both are all zero, 0 where one is."""
    one, other = (array.reshape(len(array), -1).astype(np.float64) for array in (one, other))
    lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    both_silent = ~one.any(axis=1) & ~other.any(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        found: np.ndarray = np.where(lengths > 0, np.sum(one * other, axis=1) / lengths, both_silent)
    return found.clip(-1, 1)


def match_operators(nodes: Sequence[NetworkTensor], operators: Sequence[FileTensor]) -> list[Match]:
    """For each operator the nearest tensor of the network by SNR, the earliest of equals."""
    rows = [node.values.reshape(len(node.values), -1).astype(np.float64) for node in nodes]
    powers = [float(np.sum(row**2)) for row in rows]
    by_shape: Places = {}
    for place, row in enumerate(rows):
        by_shape.setdefault(row.shape, []).append(place)
    return [_nearest(operator, rows, powers, by_shape) for operator in operators]


def _nearest(operator: FileTensor, rows: list[np.ndarray], powers: list[float], by_shape: Places) -> Match:
    best: tuple[float, int, np.ndarray] | None = None
    for values in _orders(operator.values):
        if not np.isfinite(values).all():
            continue
        for place in by_shape.get(values.shape, ()):
            snr_db = _snr_db(powers[place], float(np.sum((rows[place] - values) ** 2)))
            if best is None or snr_db > best[0] + MIN_GAIN_DB:
                best = snr_db, place, values
    if best is None:
        return Match(next(iter(by_shape.values()))[0], NO_SIMILARITY)
    snr_db, place, values = best
    return Match(place, Similarity(float(cosines(rows[place], values).mean()), snr_db))


def _orders(values: np.ndarray) -> list[np.ndarray]:
    """(n, values) in the network's order of axes: as they are, and of channels-last tensors with channels in front."""
    flat = [values.reshape(len(values), -1).astype(np.float64)]
    if values.ndim > 2:
        flat.append(np.moveaxis(values, -1, 1).reshape(len(values), -1).astype(np.float64))
    return flat


def _snr_db(power: float, noise: float) -> float:
    if noise == 0:
        return EQUAL_DB
    return min(EQUAL_DB, 10 * math.log10(power / noise)) if power else -EQUAL_DB
