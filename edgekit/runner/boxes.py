"""Turn a detector's outputs into boxes, by decoding and non-maximum suppression, with the same bits on every machine.

A detector predicts at the points of one or more grids. Each grid covers the picture with cells of `stride` pixels, row
by row, and the finest grid comes first. For each point the network gives the distances from the centre of its cell to
the left, top, right and bottom side of the box, in strides, and a logit for each class (FCOS, Tian et al., ICCV 2019).

Every step is element-wise float32 arithmetic. Boxes are sorted by logit, and boxes with equal logits by the order of
their points. The exponential of a probability comes from `math` and is rounded to float32, because NumPy's differs
between processors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from edgekit.runner.errors import BundleError

STRIDES = (4, 8, 16, 32, 64, 128)
BOX_SIDES = 4
"""Numbers per box: left, top, right, bottom."""
LOGIT, CLASS, FIELDS = BOX_SIDES, BOX_SIDES + 1, BOX_SIDES + 2
"""Where only the best class of a point is given: the columns of its logit and number, and the number of columns."""
CLASS_UNIT = np.float32(1000)
"""The number of the class is given in thousandths, so that a tie of two classes changes the outputs only a little."""
MAX_CANDIDATES = 400
"""At most this many boxes of a picture, those with the highest logits, enter non-maximum suppression."""
ZERO, NONE = np.float32(0), np.empty(0, dtype=np.int64)
BLOCK = 40
"""How many boxes' overlaps are computed at once.

With fewer, call overhead dominates; with more, memory traffic does.
"""


class BoxOptions(NamedTuple):
    """The options that decide which boxes become answers.

    `least_probability` is the minimum probability, `overlap` the intersection over union above which the less probable
    of two boxes is dropped, and `most` the maximum number of boxes.
    """

    least_probability: float = 0.05
    overlap: float = 0.5
    most: int = 100


DEFAULT = BoxOptions()


class Boxes(NamedTuple):
    """The boxes of one picture, best first: `sides` (n, 4) in pixels, `logits` (n,) float32, `classes` (n,) int64."""

    sides: np.ndarray
    logits: np.ndarray
    classes: np.ndarray


def grid_shape(size: Sequence[int], stride: int) -> tuple[int, int]:
    """Return the rows and columns of a grid over a picture of (height, width)."""
    height, width = size
    return -(-height // stride), -(-width // stride)


def grid_strides(size: Sequence[int], points: int) -> tuple[int, ...]:
    """Return the strides of the grids that together have `points` points over a picture of (height, width).

    Each stride is twice the one before. Raises BundleError if no such grids have that number of points.
    """
    for first, last in combinations(range(len(STRIDES) + 1), 2):
        strides = STRIDES[first:last]
        if sum(math.prod(grid_shape(size, stride)) for stride in strides) == points:
            return strides
    height, width = size
    raise BundleError(
        f"{points} points for a picture of {width}×{height}: no grids with strides of {', '.join(map(str, STRIDES))} "
        "have so many; let the network give one row for each cell, the finest grid first"
    )


def grid_centres(size: Sequence[int], points: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the points' centres (points, 2) as x, y and their strides (points, 1), both in pixels and float32."""
    return centres_of_strides(size, grid_strides(size, points))


def centres_of_strides(size: Sequence[int], strides: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Return the points' centres and strides, like `grid_centres`, for grids with these strides."""
    centres, widths = [], []
    for stride in strides:
        rows, columns = grid_shape(size, stride)
        y, x = np.mgrid[:rows, :columns]
        centres.append((np.stack([x, y], axis=-1).reshape(-1, 2) + 0.5) * stride)
        widths.append(np.full((rows * columns, 1), stride))
    return np.concatenate(centres).astype(np.float32), np.concatenate(widths).astype(np.float32)


def point_centres(size: Sequence[int], points: int) -> tuple[np.ndarray, np.ndarray]:
    """Return centres and strides, like `grid_centres`; points that belong to no grids have the centre 0, stride 1."""
    try:
        return grid_centres(size, points)
    except BundleError:
        return np.zeros((points, 2), dtype=np.float32), np.ones((points, 1), dtype=np.float32)


class Decoder:
    """Converts outputs (points, 4 + classes) for pictures of one (height, width) into `Boxes`."""

    def __init__(self, size: Sequence[int], points: int, options: BoxOptions = DEFAULT) -> None:
        centres, strides = point_centres(size, points)
        self.places = np.concatenate([centres, centres], axis=1)
        self.reaches = np.concatenate([-strides, -strides, strides, strides], axis=1)
        height, width = size
        self.limits = np.array([width, height, width, height], dtype=np.float32)
        self.options = options
        probability = options.least_probability
        self.least_logit = np.float32(math.log(probability / (1 - probability)))

    def __call__(self, outputs: np.ndarray) -> Boxes:
        logits = outputs[:, BOX_SIDES:].ravel()
        candidates = self.likely(logits)
        class_count = outputs.shape[1] - BOX_SIDES
        points = candidates // class_count
        return self.select(outputs, points, logits[candidates], candidates - points * class_count)[0]

    def best_classes(self, outputs: np.ndarray) -> tuple[Boxes, np.ndarray]:
        """Return the boxes of outputs (points, `FIELDS` + others), which have one class each, and their points."""
        candidates = self.likely(outputs[:, LOGIT])
        classes = np.rint(outputs[candidates, CLASS] * CLASS_UNIT).astype(np.int64)
        return self.select(outputs, candidates, outputs[candidates, LOGIT], classes)

    def likely(self, logits: np.ndarray) -> np.ndarray:
        """Return the indices of the logits (n,) that are high enough, best first, at most `MAX_CANDIDATES`."""
        candidates = (logits >= self.least_logit).nonzero()[0]
        return candidates[(-logits[candidates]).argsort(kind="stable")[:MAX_CANDIDATES]]

    def select(
        self, outputs: np.ndarray, points: np.ndarray, logits: np.ndarray, classes: np.ndarray
    ) -> tuple[Boxes, np.ndarray]:
        """Return the boxes that suppression leaves of those at `points` (n,), best first, and the points of these."""
        sides = outputs.take(points, axis=0)[:, :BOX_SIDES] * self.reaches.take(points, axis=0)
        sides += self.places.take(points, axis=0)
        np.minimum(np.maximum(sides, ZERO, out=sides), self.limits, out=sides)
        inside = area(sides) > 0
        if not inside.all():
            sides, points, logits, classes = sides[inside], points[inside], logits[inside], classes[inside]
        selected = non_maximum_suppression(sides, classes, self.options.overlap, self.options.most)
        return Boxes(sides.take(selected, axis=0), logits[selected], classes[selected]), points[selected]


def non_maximum_suppression(sides: np.ndarray, classes: np.ndarray, overlap: float, most: int) -> np.ndarray:
    """Return the indices of the boxes that remain after suppression within each class.

    The algorithm is greedy (Felzenszwalb et al. 2010). `sides` (n, 4) and `classes` (n,) must be sorted best first. The
    overlaps of the next `BLOCK` boxes with all undecided ones are computed at once, and the boxes that a selected one
    covers are dropped from the undecided.
    """
    corners, areas, indices = np.ascontiguousarray(sides.T), area(sides), np.arange(len(sides))
    selected: list[int] = []
    while len(indices) and len(selected) < most:
        intersection = intersections(corners[:, :BLOCK], corners)
        allowed = areas[:BLOCK, None] + areas
        allowed -= intersection
        allowed *= np.float32(overlap)
        covered = intersection > allowed
        covered &= classes[:BLOCK, None] == classes
        uncovered = _uncovered_rows(covered[:, :BLOCK])
        selected += indices[uncovered].tolist()
        undecided = (~covered[uncovered, BLOCK:].any(axis=0)).nonzero()[0] + BLOCK if len(indices) > BLOCK else NONE
        corners, areas, classes, indices = (
            corners.take(undecided, axis=1),
            areas[undecided],
            classes[undecided],
            indices[undecided],
        )
    return np.array(selected[:most], dtype=np.int64)


def _uncovered_rows(covered: np.ndarray) -> list[int]:
    """Return the rows of a matrix (n, n) that no selected earlier row covers.

    Rows are handled as integers, one bit per column.
    """
    bits = np.packbits(covered, axis=1, bitorder="little")
    row_bytes, packed = bits.shape[1], bits.tobytes()
    undecided, selected = (1 << len(covered)) - 1, []
    while undecided:
        row = (undecided & -undecided).bit_length() - 1  # the lowest bit
        selected.append(row)
        undecided &= ~(int.from_bytes(packed[row * row_bytes : (row + 1) * row_bytes], "little") | 1 << row)
    return selected


def area(sides: np.ndarray) -> np.ndarray:
    """Return the areas (n,) of boxes (n, 4), 0 where a side lies beyond its opposite."""
    spans = sides[:, 2:] - sides[:, :2]
    np.maximum(spans, ZERO, out=spans)
    return spans[:, 0] * spans[:, 1]


def intersections(boxes: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return the areas (n, m) that each of `boxes` (4, n) shares with each of `others` (4, m).

    Each row of `boxes` and `others` holds one side of all boxes.
    """
    shared = np.minimum(boxes[2:, :, None], others[2:, None])
    shared -= np.maximum(boxes[:2, :, None], others[:2, None])
    np.maximum(shared, ZERO, out=shared)
    return np.multiply(shared[0], shared[1], out=shared[0])


def probability(logit: float) -> float:
    """Return the sigmoid as a float that float32 can hold, so that it does not depend on the last bit of `math.exp`."""
    return float(np.float32(1 / (1 + math.exp(-logit)) if logit >= 0 else math.exp(logit) / (1 + math.exp(logit))))
