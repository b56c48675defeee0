"""Samples from `.npy` files."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING

import numpy as np

from edgekit.runner.errors import InputError

if TYPE_CHECKING:
    from edgekit.runner.manifest import RawSpec

LARGEST_HEADER_BYTES = 2**16


def read(path: str, raw: RawSpec) -> np.ndarray:
    """The array as it is, a large one not yet read: whether it fits, the model says, by shape and dtype first."""
    most = math.prod(raw.shape) * np.dtype(raw.dtype).itemsize + LARGEST_HEADER_BYTES
    try:
        large = os.path.getsize(path) > most
        value = np.load(path, mmap_mode="r" if large else None, allow_pickle=False)
    except Exception as error:  # numpy hands on whatever Python's own parser makes of a mangled header
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise InputError(f"{path}: not a plain .npy array ({reason}); save one sample with numpy.save") from None
    if not isinstance(value, np.ndarray):
        value.close()
        raise InputError(f"{path}: an archive of arrays; save one sample with numpy.save")
    return value
