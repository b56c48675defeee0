"""Masks of single objects, as annotations give them: from polygons, and from COCO's run lengths."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

MAX_SHIFT = 60
"""No run length has as many bits."""


def from_polygons(polygons: Iterable[np.ndarray], size: Sequence[int]) -> np.ndarray:
    """Return the pixels (height, width) bool whose centres lie in one of the polygons (points, 2) of x and y in pixels.

    What a polygon encloses twice is outside of it, by the even-odd rule.
    """
    mask = np.zeros(tuple(size), dtype=bool)
    for points in polygons:
        mask |= _inside(points, size)
    return mask


def _inside(points: np.ndarray, size: Sequence[int]) -> np.ndarray:
    height, width = size
    ends, centres = np.roll(points, -1, axis=0), np.arange(height) + 0.5
    edges, rows = np.nonzero((points[:, 1, None] <= centres) != (ends[:, 1, None] <= centres))
    start, end = points[edges], ends[edges]
    shares = (centres[rows] - start[:, 1]) / (end[:, 1] - start[:, 1])
    x = start[:, 0] + shares * (end[:, 0] - start[:, 0])
    first = np.ceil(x - 0.5).clip(0, width).astype(np.int64)  # the first pixel with its centre beyond the edge
    crossed = np.zeros((height, width + 1), dtype=np.int64)
    np.add.at(crossed, (rows, first), 1)
    inside: np.ndarray = crossed.cumsum(axis=1)[:, :width] % 2 == 1
    return inside


def decompressed(text: str) -> list[int]:
    """Return the run lengths of COCO's compressed encoding, see `edgekit.runner.instance_masks.compressed`.

    Raises ValueError if the text is none.
    """
    counts: list[int] = []
    number = shift = 0
    for letter in text:
        bits = ord(letter) - 48
        if not 0 <= bits < 64 or shift > MAX_SHIFT:
            raise ValueError(f"{letter!r} does not belong to run lengths")
        number |= (bits & 31) << shift
        shift += 5
        if not bits & 32:
            number -= (bits & 16) << (shift - 4)
            counts.append(number + (counts[-2] if len(counts) > 2 else 0))
            number = shift = 0
    if shift:
        raise ValueError("it ends within a number")
    return counts
