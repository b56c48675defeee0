"""Segmentation masks: the class of each pixel of a picture, (height, width) uint8, or 255 where it is unknown.

A model returns logits (classes, rows, columns) of cells, each of which covers a square of pixels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from edgekit.runner.errors import BundleError

UNKNOWN = 255


def cell_size(size: Sequence[int], grid: Sequence[int]) -> int:
    """Return the side of a cell in pixels, for a sample (height, width) and a grid (rows, columns).

    Raises BundleError unless the side is a whole number and the same on both axes.
    """
    (height, width), (rows, columns) = size, grid
    side = height // max(1, rows)
    if side < 1 or (rows * side, columns * side) != (height, width):
        raise BundleError(
            f"a grid of {rows}×{columns} cells over {height}×{width} pixels: height and width must be the "
            f"same whole multiple of the grid's"
        )
    return side


def enlarge(cells: np.ndarray, side: int) -> np.ndarray:
    """Enlarge cells (…, rows, columns) to pixels (…, height, width)."""
    return cells if side == 1 else cells.repeat(side, axis=-2).repeat(side, axis=-1)


def nearest_indices(after: int, before: int) -> np.ndarray:
    """Return, for each of `after` new pixels, the index of the old pixel under its centre.

    The side of the picture had `before` pixels.
    """
    return (2 * np.arange(after) + 1) * before // (2 * after)


def run_lengths(mask: np.ndarray) -> dict[int, dict[str, Any]]:
    """Return COCO's uncompressed run-length encoding of each class that is present.

    `counts` are the lengths of the runs of pixels outside the class, inside it, outside it and so on. The pixels are
    read down each column, and the columns from left to right.
    """
    flat = mask.ravel(order="F")
    starts = np.concatenate([[0], np.flatnonzero(flat[1:] != flat[:-1]) + 1])
    ends, kinds = np.append(starts[1:], len(flat)), flat[starts]
    encodings = {}
    for kind in np.unique(kinds).tolist():
        edges = np.stack([starts[kinds == kind], ends[kinds == kind]], axis=1).ravel()
        counts = np.diff(np.concatenate([[0], edges, [len(flat)]]))
        encodings[kind] = {"size": list(mask.shape), "counts": (counts if counts[-1] else counts[:-1]).tolist()}
    return encodings


def check_grids(size: Sequence[int], labels: int, grids: Sequence[Sequence[int]]) -> None:
    """Raise BundleError unless there is exactly one grid (labels, rows, columns) that fits pictures of this size."""
    if not 1 < labels <= UNKNOWN:
        raise BundleError(f"manifest.json: labels: got {labels}; name 2 to {UNKNOWN} classes")
    if len(size) != 3 or len(grids) != 1 or len(grids[0]) != 3 or grids[0][0] != labels:
        raise BundleError(f"manifest.json: outputs: got {grids}; use one of [1, {labels}, rows, columns], of pictures")
    cell_size(size[:2], grids[0][1:])
