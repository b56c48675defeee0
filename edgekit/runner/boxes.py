"""From a detector's outputs to boxes: decoding and non-maximum suppression, by numpy and with the same bits everywhere.

A detector looks at the points of one or more grids. Each grid covers the picture with cells of `stride` pixels, row by
row, and the finest grid comes first. For each point the network gives the distances from the middle of its cell to the
box's left, top, right and bottom side, in strides, and a logit for each class (FCOS, Tian et al., ICCV 2019).

Every step is float32 arithmetic, element by element; the order of boxes is that of their logits, of equals that of
their points. The exponential of a probability is rounded from `math`, for numpy's differs between processors.
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
"""A box's numbers: left, top, right, bottom."""
MAX_CANDIDATES = 400
"""Of a picture, those with the highest logits go on to the suppression."""
ZERO, NONE = np.float32(0), np.empty(0, dtype=np.int64)
BLOCK = 40
"""Boxes whose overlaps are computed at once: with fewer, calls cost more than arithmetic; with more, memory does."""


class BoxOptions(NamedTuple):
    """What counts as a box: its least probability, the overlap above which the lesser of two goes, and how many."""

    least_probability: float = 0.05
    overlap: float = 0.5
    most: int = 100


DEFAULT = BoxOptions()


class Boxes(NamedTuple):
    """Boxes of one picture, best first: `sides` (n, 4) in pixels, `logits` (n,) float32, `classes` (n,) int64."""

    sides: np.ndarray
    logits: np.ndarray
    classes: np.ndarray


def grid_shape(size: Sequence[int], stride: int) -> tuple[int, int]:
    """Rows and columns of the grid over a picture of (height, width)."""
    height, width = size
    return -(-height // stride), -(-width // stride)


def grid_strides(size: Sequence[int], points: int) -> tuple[int, ...]:
    """The strides of the grids that have so many points over a picture of (height, width) together.

    Each is twice the one before. BundleError where no such grids have that number of points.
    """
    for first, last in combinations(range(len(STRIDES) + 1), 2):
        found = STRIDES[first:last]
        if sum(math.prod(grid_shape(size, stride)) for stride in found) == points:
            return found
    height, width = size
    raise BundleError(
        f"{points} points for a picture of {width}×{height}: no grids with strides of {', '.join(map(str, STRIDES))} "
        "have so many; let the network give one row for each cell, the finest grid first"
    )


def grid_centres(size: Sequence[int], points: int) -> tuple[np.ndarray, np.ndarray]:
    """The points' places (points, 2), x before y, and their strides (points, 1), in pixels, float32."""
    places, widths = [], []
    for stride in grid_strides(size, points):
        rows, columns = grid_shape(size, stride)
        y, x = np.mgrid[:rows, :columns]
        places.append((np.stack([x, y], axis=-1).reshape(-1, 2) + 0.5) * stride)
        widths.append(np.full((rows * columns, 1), stride))
    return np.concatenate(places).astype(np.float32), np.concatenate(widths).astype(np.float32)


class Decoder:
    """Outputs (points, 4 + classes) of pictures of one (height, width) → `Boxes`."""

    def __init__(self, size: Sequence[int], points: int, options: BoxOptions = DEFAULT) -> None:
        places, widths = grid_centres(size, points)
        self.places = np.concatenate([places, places], axis=1)
        self.reaches = np.concatenate([-widths, -widths, widths, widths], axis=1)
        height, width = size
        self.limits = np.array([width, height, width, height], dtype=np.float32)
        self.options = options
        share = options.least_probability
        self.least_logit = np.float32(math.log(share / (1 - share)))

    def __call__(self, outputs: np.ndarray) -> Boxes:
        logits = outputs[:, BOX_SIDES:].ravel()
        found = (logits >= self.least_logit).nonzero()[0]
        found = found[(-logits[found]).argsort(kind="stable")[:MAX_CANDIDATES]]
        of_each = outputs.shape[1] - BOX_SIDES
        points = found // of_each
        scores, classes = logits[found], found - points * of_each
        sides = outputs.take(points, axis=0)[:, :BOX_SIDES] * self.reaches.take(points, axis=0)
        sides += self.places.take(points, axis=0)
        np.minimum(np.maximum(sides, ZERO, out=sides), self.limits, out=sides)
        kept = non_maximum_suppression(sides, classes, self.options.overlap, self.options.most)
        return Boxes(sides.take(kept, axis=0), scores[kept], classes[kept])


def non_maximum_suppression(sides: np.ndarray, classes: np.ndarray, overlap: float, most: int) -> np.ndarray:
    """Places of the boxes that stay, of boxes sorted best first: greedy, class by class (Felzenszwalb et al. 2010).

    The overlaps of the next `BLOCK` boxes with all that wait are computed at once. What those that stay cover waits no
    longer.
    """
    corners, areas, places = np.ascontiguousarray(sides.T), area(sides), np.arange(len(sides))
    kept: list[int] = []
    while len(places) and len(kept) < most:
        shared = intersections(corners[:, :BLOCK], corners)
        share = areas[:BLOCK, None] + areas
        share -= shared
        share *= np.float32(overlap)
        covered = shared > share
        covered &= classes[:BLOCK, None] == classes
        stay = _uncovered(covered[:, :BLOCK])
        kept += places[stay].tolist()
        wait = (~covered[stay, BLOCK:].any(axis=0)).nonzero()[0] + BLOCK if len(places) > BLOCK else NONE
        corners, areas, classes, places = corners.take(wait, axis=1), areas[wait], classes[wait], places[wait]
    return np.array(kept[:most], dtype=np.int64)


def _uncovered(covered: np.ndarray) -> list[int]:
    """The rows (n, n) that no row before them covers which stays itself: rows are whole numbers with a bit for each."""
    bits = np.packbits(covered, axis=1, bitorder="little")
    each, packed = bits.shape[1], bits.tobytes()
    left, stay = (1 << len(covered)) - 1, []
    while left:
        row = (left & -left).bit_length() - 1  # the lowest bit
        stay.append(row)
        left &= ~(int.from_bytes(packed[row * each : (row + 1) * each], "little") | 1 << row)
    return stay


def area(sides: np.ndarray) -> np.ndarray:
    """(n,) of boxes (n, 4); 0 where a side is beyond its opposite."""
    spans = sides[:, 2:] - sides[:, :2]
    np.maximum(spans, ZERO, out=spans)
    return spans[:, 0] * spans[:, 1]


def intersections(ones: np.ndarray, others: np.ndarray) -> np.ndarray:
    """(n, m): the area that each of boxes (4, n) shares with each of others (4, m), a row for each side."""
    shared = np.minimum(ones[2:, :, None], others[2:, None])
    shared -= np.maximum(ones[:2, :, None], others[:2, None])
    np.maximum(shared, ZERO, out=shared)
    return np.multiply(shared[0], shared[1], out=shared[0])


def probability(logit: float) -> float:
    """The sigmoid, as a float that float32 holds: where `math` differs by a last bit, this does not."""
    return float(np.float32(1 / (1 + math.exp(-logit)) if logit >= 0 else math.exp(logit) / (1 + math.exp(logit))))
