"""How samples, channels last, become what a model takes: found from the two shapes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgekit.core.errors import ModelError
from edgekit.runner.preprocess.transform import to_layout


@dataclass(frozen=True)
class Layout:
    """`order` is that of the axes, as the runner names it; `sides` are those of one sample in the model."""

    order: str
    sides: tuple[int, ...]

    def arrange(self, x: np.ndarray) -> np.ndarray:
        """A batch of images (n, height, width, channels), of vectors or windows, contiguous as the model takes it."""
        return to_layout(x, self.order).reshape(len(x), *self.sides)


def channels_last(input_shape: tuple[int, ...]) -> tuple[int, ...]:
    """Of a network's (C, H, W) the sample's (H, W, C); anything else, windows (time, channels) too, as it is."""
    return (*input_shape[1:], input_shape[0]) if len(input_shape) == 3 else input_shape


def find(shape: Sequence[int], sample: Sequence[int]) -> Layout:
    """The layout of an input of `shape` (batch first, -1: open) for samples of another; ModelError unless there is one.

    Grey pictures also fit an input without channels, flat or not: their values stand in the same order.
    """
    fitting = [layout for layout in _layouts(tuple(sample)) if _fits(shape[1:], layout.sides)]
    shown = f"[{', '.join('?' if side < 0 else str(side) for side in shape)}]"
    if not fitting and len(sample) == 2 and _fits(shape[1:], sample[::-1]):
        raise ModelError(
            f"takes {shown}, channels before time, the samples are windows {list(sample)}, time before channels; "
            "export it with the transpose inside, its first step, so that it takes (time, channels)"
        )
    if not fitting:
        raise ModelError(
            f"takes {shown}, the samples are {list(sample)} after its preprocess; "
            "add a resize or channels step to its preprocess, or export it for these samples, the batch first"
        )
    if len(fitting) > 1:
        raise ModelError(
            f"takes {shown}, in which samples {list(sample)} fit with their channels first and last; "
            "export it with a fixed height, width and number of channels"
        )
    return fitting[0]


def _layouts(sample: tuple[int, ...]) -> list[Layout]:
    if len(sample) < 3:
        return [Layout("NC" if len(sample) == 1 else "ANY", sample)]
    height, width, channels = sample
    found = [Layout("NHWC", sample), Layout("NCHW", (channels, height, width))]
    if channels == 1:
        found += [Layout("NHWC", (height, width)), Layout("NHWC", (height * width,))]
    return found


def _fits(wanted: Sequence[int], sides: Sequence[int]) -> bool:
    return len(wanted) == len(sides) and all(want in (-1, side) for want, side in zip(wanted, sides, strict=True))
