"""Whether the values of a raw sample are those that its bundle promises to answer for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from edgekit.runner import input_vector
from edgekit.runner.errors import InputError

if TYPE_CHECKING:
    from edgekit.runner.bundle.manifest import RawSpec


def check_values(raw: np.ndarray, spec: RawSpec) -> None:
    """InputError for NaN or infinity, for values out of range, and for ids that are none of the vocabulary's."""
    low, high = np.minimum.reduce(raw, axis=None), np.maximum.reduce(raw, axis=None)
    if not (np.isfinite(low) and np.isfinite(high)):
        raise InputError("sample: holds NaN or infinity; check the sensor or the file")
    if spec.tensors is not None:
        input_vector.check_values(raw, spec.tensors)
    promised = spec.range
    if promised is None or (low >= promised[0] and high <= promised[1]):
        return
    if raw.dtype == np.int32:
        raise InputError(
            f"sample: token ids from {low} to {high}; the bundle's vocabulary has 0 to {promised[1]}, "
            "make them with that vocabulary"
        )
    raise InputError(
        f"sample: values from {low:.6g} to {high:.6g}; the bundle takes {promised[0]:g} to {promised[1]:g}, "
        "scale the sample as the training data were"
    )
