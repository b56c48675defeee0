"""Several outputs of a model as one array, so that code that compares, records or sends outputs handles a single one.

Outputs that differ only in their last axis are joined along it: boxes (n, 4) and scores (n, classes) become (n, 4 +
classes). All others are flattened and concatenated.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


def shape(outputs: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Return the shape of the joined outputs. No shape includes a batch axis."""
    if len(outputs) == 1:
        return tuple(outputs[0])
    if share_leading_axes(outputs):
        return (*outputs[0][:-1], sum(each[-1] for each in outputs))
    return (sum(prod(each) for each in outputs),)


def join(outputs: Sequence[np.ndarray]) -> np.ndarray:
    """Join outputs (batch, …) into one array (batch, …)."""
    import numpy as np

    if len(outputs) == 1:
        return outputs[0]
    if share_leading_axes([each.shape[1:] for each in outputs]):
        return np.concatenate(outputs, axis=-1)
    return np.concatenate([each.reshape(len(each), -1) for each in outputs], axis=1)


def split(array: np.ndarray, outputs: Sequence[Sequence[int]]) -> list[np.ndarray]:
    """Split `array` (batch, …) into the outputs that were joined in it, given their shapes without a batch axis."""
    if len(outputs) == 1:
        return [array]
    is_along_last_axis = share_leading_axes(outputs)
    parts, start = [], 0
    for each in outputs:
        width = each[-1] if is_along_last_axis else prod(each)
        parts.append(array[..., start : start + width].reshape(len(array), *each))
        start += width
    return parts


def share_leading_axes(outputs: Sequence[Sequence[int]]) -> bool:
    """Whether all outputs have more than one axis and differ in the last one at most."""
    first = tuple(outputs[0])
    return len(first) > 1 and all(tuple(each)[:-1] == first[:-1] for each in outputs)
