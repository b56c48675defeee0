"""Masks: the class of each pixel of a picture, (height, width) uint8, 255 where none is known.

A model gives logits (classes, rows, columns) of cells, each of which stands for so many pixels in both directions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from edgekit.runner.errors import BundleError

UNKNOWN = 255


def cell_size(size: Sequence[int], grid: Sequence[int]) -> int:
    """Pixels of a cell's side, for a sample (height, width) and a grid (rows, columns); BundleError if not whole."""
    (height, width), (rows, columns) = size, grid
    side = height // max(1, rows)
    if side < 1 or (rows * side, columns * side) != (height, width):
        raise BundleError(
            f"a grid of {rows}×{columns} cells over {height}×{width} pixels: both sides must be divided by the same "
            "whole number"
        )
    return side


def enlarge(cells: np.ndarray, side: int) -> np.ndarray:
    """Cells (…, rows, columns) as pixels (…, height, width)."""
    return cells if side == 1 else cells.repeat(side, axis=-2).repeat(side, axis=-1)


def nearest_indices(after: int, before: int) -> np.ndarray:
    """(after,): of a side that goes from `before` pixels to `after`, the old pixel below the middle of each new one."""
    return (2 * np.arange(after) + 1) * before // (2 * after)


def run_lengths(mask: np.ndarray) -> dict[int, dict[str, Any]]:
    """By class, COCO's uncompressed run-length encoding of its pixels; of classes that are there.

    `counts` go down the columns, from left to right, and are of pixels that are not of the class, that are, and so on.
    """
    flat = mask.ravel(order="F")
    starts = np.concatenate([[0], np.flatnonzero(flat[1:] != flat[:-1]) + 1])
    ends, kinds = np.append(starts[1:], len(flat)), flat[starts]
    found = {}
    for kind in np.unique(kinds).tolist():
        edges = np.stack([starts[kinds == kind], ends[kinds == kind]], axis=1).ravel()
        counts = np.diff(np.concatenate([[0], edges, [len(flat)]]))
        found[kind] = {"size": list(mask.shape), "counts": (counts if counts[-1] else counts[:-1]).tolist()}
    return found


def check_grids(size: Sequence[int], labels: int, grids: Sequence[Sequence[int]]) -> None:
    """BundleError unless there is one grid (labels, rows, columns), over pictures of this size."""
    if not 1 < labels <= UNKNOWN:
        raise BundleError(f"manifest.json: labels: got {labels}; name 2 to {UNKNOWN} classes")
    if len(size) != 3 or len(grids) != 1 or len(grids[0]) != 3 or grids[0][0] != labels:
        raise BundleError(
            f"manifest.json: outputs: got {grids}; needed one of [1, {labels}, rows, columns], of pictures"
        )
    cell_size(size[:2], grids[0][1:])
