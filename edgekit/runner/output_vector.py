"""Several outputs of a model as one array, so that whatever compares, records or sends outputs sees one.

Outputs that differ in their last axis alone are joined along it: boxes (n, 4) and scores (n, classes) become
(n, 4 + classes). All others are flattened and stand one behind the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


def shape(outputs: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Of outputs of these shapes, without a batch, joined."""
    if len(outputs) == 1:
        return tuple(outputs[0])
    if share_leading_axes(outputs):
        return (*outputs[0][:-1], sum(each[-1] for each in outputs))
    return (sum(prod(each) for each in outputs),)


def join(outputs: Sequence[np.ndarray]) -> np.ndarray:
    """Outputs (batch, …) as one array (batch, …)."""
    import numpy as np

    if len(outputs) == 1:
        return outputs[0]
    if share_leading_axes([each.shape[1:] for each in outputs]):
        return np.concatenate(outputs, axis=-1)
    return np.concatenate([each.reshape(len(each), -1) for each in outputs], axis=1)


def split(array: np.ndarray, outputs: Sequence[Sequence[int]]) -> list[np.ndarray]:
    """The outputs, of these shapes without a batch, that were joined in `array` (batch, …)."""
    if len(outputs) == 1:
        return [array]
    axis_last = share_leading_axes(outputs)
    found, place = [], 0
    for each in outputs:
        width = each[-1] if axis_last else prod(each)
        found.append(array[..., place : place + width].reshape(len(array), *each))
        place += width
    return found


def share_leading_axes(outputs: Sequence[Sequence[int]]) -> bool:
    """Whether there are axes before the last, the same ones in all."""
    first = tuple(outputs[0])
    return len(first) > 1 and all(tuple(each)[:-1] == first[:-1] for each in outputs)
