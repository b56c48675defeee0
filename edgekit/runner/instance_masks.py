"""Turn the outputs of a network for instance masks into boxes, each with the mask of its object.

A network gives prototypes, one picture of logits in each of several channels, on a grid with cells of `STRIDE` pixels.
Each box has a coefficient for every prototype; the sum of the prototypes, times the coefficients, is the logit of the
object's mask in each cell (YOLACT, Bolya et al., ICCV 2019).

Outputs are (points + cells, 6 + coefficients). The rows of the points come first: sides, logit and class as for
keypoints, then the coefficients. A row follows for each cell of the prototypes, row by row: six zeros, and the value of
each prototype. Every step is element-wise float32 arithmetic in a fixed order, as it is for boxes.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, prod
from typing import Any, NamedTuple

import numpy as np

from edgekit.runner import boxes, masks
from edgekit.runner.boxes import FIELDS, Boxes, BoxOptions

STRIDE = 4
"""Side of the prototypes' cells, pixels."""


class Mask(NamedTuple):
    """The pixels (height, width) bool of a mask in a part of a picture whose first pixel is at `left`, `top`."""

    pixels: np.ndarray
    left: int
    top: int

    @property
    def window(self) -> tuple[slice, slice]:
        """Rows and columns of the picture that the part covers."""
        height, width = self.pixels.shape
        return slice(self.top, self.top + height), slice(self.left, self.left + width)

    def in_picture(self, size: Sequence[int]) -> np.ndarray:
        """Return the pixels of the whole picture of (height, width)."""
        whole = np.zeros(tuple(size), bool)
        whole[self.window] = self.pixels
        return whole


class Decoder:
    """Converts outputs (points + cells, 6 + coefficients) for pictures of one (height, width)."""

    def __init__(self, size: Sequence[int], rows: int, options: BoxOptions = boxes.DEFAULT) -> None:
        self._grid = boxes.grid_shape(size, STRIDE)
        self._points = rows - prod(self._grid)
        self._boxes = boxes.Decoder(size, self._points, options)

    def __call__(self, outputs: np.ndarray) -> tuple[Boxes, np.ndarray, np.ndarray]:
        """Return the boxes, their coefficients (n, prototypes), and the prototypes (prototypes, rows, columns)."""
        found, points = self._boxes.best_classes(outputs[: self._points])
        prototypes = np.ascontiguousarray(outputs[self._points :, FIELDS:].T)
        return found, outputs[points, FIELDS:], prototypes.reshape(-1, *self._grid)


def object_mask(
    coefficients: np.ndarray,
    prototypes: np.ndarray,
    sides: Sequence[float],
    start: Sequence[float] = (0, 0),
    step: Sequence[float] = (1, 1),
) -> Mask:
    """Return the mask of an object: the pixels whose top left corner is inside its box and whose logit is above 0.

    The logits of the cells are interpolated linearly between their centres. Ultralytics has the same rules.

    Parameters
    ----------
    coefficients, prototypes
        (prototypes,) and (prototypes, rows, columns).
    sides
        Left, top, right and bottom of the box in pixels of the picture that the mask is for.
    start, step
        x and y of the top left corner of that picture, and width and height of its pixels, in pixels of the sample.
    """
    (left, first_x, share_x), (top, first_y, share_y) = (
        _cells(sides[axis], sides[axis + 2], start[axis], step[axis], prototypes.shape[2 - axis]) for axis in (0, 1)
    )
    if not len(share_x) or not len(share_y):
        return Mask(np.zeros((len(share_y), len(share_x)), bool), left, top)
    (low_x, high_x), (low_y, high_y) = ((int(each[0]), int(each[-1]) + 2) for each in (first_x, first_y))
    window = prototypes[:, low_y:high_y, low_x:high_x]
    cells = window[0] * coefficients[0]
    for coefficient, prototype in zip(coefficients[1:], window[1:]):  # in order, unlike a product of matrices
        cells += prototype * coefficient
    rows = _between(cells, first_y - low_y, share_y[:, None], 0)
    return Mask(_between(rows, first_x - low_x, share_x, 1) > 0, left, top)


def _cells(low: float, high: float, start: float, step: float, count: int) -> tuple[int, np.ndarray, np.ndarray]:
    """Return the first pixel of a box on an axis, and for each pixel the cell before its centre and a share.

    The share is that of the next of the `count` cells. Pixels beyond the centre of the last cell have its value.
    """
    first, end = ceil(low), ceil(high)
    places = ((np.arange(first, max(first, end)) + 0.5) * step + start) / STRIDE - 0.5
    places = places.clip(0, count - 1)
    cells = np.minimum(places.astype(np.int64), max(0, count - 2))
    return first, cells, (places - cells).astype(np.float32)


def _between(values: np.ndarray, first: np.ndarray, shares: np.ndarray, axis: int) -> np.ndarray:
    before = values.take(first, axis=axis)
    after = values.take(np.minimum(first + 1, values.shape[axis] - 1), axis=axis)
    after -= before
    after *= shares
    return np.add(before, after, out=before)


def run_lengths(pixels: np.ndarray) -> list[int]:
    """Return COCO's run lengths of pixels (height, width) bool, see `masks.run_lengths`."""
    runs = masks.run_lengths(pixels.view(np.uint8)).get(1) if pixels.size else None
    return runs["counts"] if runs else [pixels.size]


def compressed(pixels: np.ndarray) -> dict[str, Any]:
    """Return COCO's compressed run-length encoding of pixels (height, width) bool: `size`, and `counts` as text.

    From the fourth on, each count is replaced by its difference from the count two before. A number is written five
    bits at a time, the lowest first. Bit 5 says that more bits follow; the code of the character is larger by 48.
    """
    letters, counts = [], run_lengths(pixels)
    for index, count in enumerate(counts):
        number = count - counts[index - 2] if index > 2 else count
        more = True
        while more:
            bits = number & 31
            number >>= 5
            more = number != (-1 if bits & 16 else 0)
            letters.append(chr(bits + 32 * more + 48))
    return {"size": list(pixels.shape), "counts": "".join(letters)}
