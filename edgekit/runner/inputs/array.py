"""Samples from `.npy` files."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from edgekit.runner import input_path
from edgekit.runner.errors import InputError
from edgekit.runner.inputs.windows import Sample

if TYPE_CHECKING:
    from edgekit.runner.bundle.manifest import RawSpec

LARGEST_HEADER_BYTES = 2**16


def samples(path: str, raw: RawSpec, strict: bool = False) -> Iterator[Sample]:
    """Yield the array unchanged.

    An array that is too large for a sample is only memory-mapped, because the model will refuse its shape or dtype.

    If the arrays in training had another shape or dtype (step `read_array`), such an array is converted as in training.
    """
    value = read_array(path, raw)
    step = None if strict else input_path.find_step(raw.steps, "read_array")
    if step and value.shape == tuple(step["shape"]) and value.dtype.name in step["dtypes"]:
        with np.errstate(over="ignore"):  # a double beyond float32 becomes infinite, which the model refuses
            value = np.asarray(value).astype(raw.dtype, copy=False).reshape(raw.shape)
    return iter((Sample(value),))


def read_array(path: str, raw: RawSpec) -> np.ndarray:
    """Return the array in a file. It is memory-mapped if it is larger than a sample of eight bytes per value."""
    max_bytes = math.prod(raw.shape) * 8 + LARGEST_HEADER_BYTES
    try:
        is_large = os.path.getsize(path) > max_bytes
        value = np.load(path, mmap_mode="r" if is_large else None, allow_pickle=False)
    except Exception as error:  # NumPy lets the errors of Python's parser through for a damaged header
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise InputError(f"{path}: not a plain .npy array ({reason}); save one sample with numpy.save") from None
    if not isinstance(value, np.ndarray):
        value.close()
        raise InputError(f"{path}: an archive of arrays; save one sample with numpy.save")
    return value
