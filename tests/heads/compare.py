"""Match the boxes of a bundle, and their masks, one to one with those that a package finds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

MAX_PIXELS, MAX_SCORE = 0.5, 1e-3
"""Differences up to which two boxes are the same."""
MIN_OVERLAP = 0.95
"""Overlap from which two masks are the same. Rounding of a side decides whether a row of pixels is in a box."""


@dataclass(frozen=True)
class Comparison:
    """How the boxes of a bundle differ from those of a package in all pictures.

    Attributes
    ----------
    boxes
        Number of boxes of the package.
    missing
        Boxes of the package without one of the bundle.
    second_classes
        Boxes at the place of another one of the package, with another class and a lower score: those of the bundle, or
        those of the package if a bundle gives one class for each point, as with keypoints and masks.
    additional
        Other boxes of the bundle without one of the package.
    pixels, score
        The largest difference of a coordinate and of a score between boxes that are the same.
    masks
        The smallest overlap (intersection over union) of the masks of boxes that are the same; None without masks.
    """

    pictures: int
    boxes: int
    missing: int
    second_classes: int
    additional: int
    pixels: float
    score: float
    masks: float | None = None

    @property
    def is_equal(self) -> bool:
        """Whether each box of the package is one of the bundle, which has only second classes beside them."""
        has_boxes = self.boxes > 0 and self.missing == self.additional == 0
        return has_boxes and (self.masks is None or self.masks >= MIN_OVERLAP)


def compare(
    answers: Sequence[np.ndarray],
    expected: Sequence[np.ndarray],
    least: float,
    masks: Sequence[tuple[np.ndarray, np.ndarray]] = (),
    *,
    has_one_class: bool = False,
) -> Comparison:
    """Compare boxes (n, 6 + 2 · keypoints) of each picture: the sides, score, class, and x and y of each keypoint.

    Each box of the package, the most probable first, takes the nearest box of its class that no other one has taken.
    Boxes whose score is `least` but for rounding may be on one side only, and boxes without area are left out. `masks`
    are those of the answers and of the expected boxes of each picture, (n, height, width) bool. Ultralytics reports no
    object whose mask is empty, so those of the bundle are left out. `has_one_class` says whether a point of the bundle
    has one class.
    """
    missing = additional = second = 0
    pixels, scores, overlaps = [0.0], [0.0], [1.0]
    wide = [(each[:, 2] > each[:, 0]) & (each[:, 3] > each[:, 1]) for each in expected]
    for picture, (own, table) in enumerate(zip(answers, expected, strict=True)):
        free, other = np.ones(len(own), dtype=bool), table[wide[picture]]
        for number in np.flatnonzero(wide[picture])[np.argsort(-other[:, 4], kind="stable")]:
            box = table[number]
            far, unlike = _differences(own, box)
            same = free & (own[:, 5] == box[5]) & (far <= MAX_PIXELS) & (unlike <= MAX_SCORE)
            if not same.any():
                is_second = has_one_class and _is_second(other, box)
                second += is_second
                missing += box[4] > least + MAX_SCORE and not is_second
                continue
            nearest = int(np.argmin(np.where(same, far + unlike, np.inf)))
            free[nearest] = False
            pixels.append(float(far[nearest]))
            scores.append(float(unlike[nearest]))
            if masks:
                overlaps.append(_overlap(masks[picture][0][nearest], masks[picture][1][number]))
        shown = masks[picture][0].any(axis=(1, 2)) if masks else True
        for box in own[free & shown & (own[:, 4] > least + MAX_SCORE)]:
            is_second = _is_second(other, box)
            second += is_second
            additional += not is_second
    return Comparison(
        len(expected), int(sum(map(np.sum, wide))), int(missing), second, additional, max(pixels), max(scores),
        min(overlaps) if masks else None,
    )  # fmt: skip


def _is_second(boxes: np.ndarray, box: np.ndarray) -> bool:
    """Return whether one of the boxes is at the same place with another class and a score that is not lower."""
    far, _ = _differences(boxes, box)
    return bool(((far <= MAX_PIXELS) & (boxes[:, 5] != box[5]) & (boxes[:, 4] >= box[4])).any())


def _overlap(mask: np.ndarray, other: np.ndarray) -> float:
    """Return the overlap of two masks (height, width); 1 if both are empty."""
    either = (mask | other).sum()
    return float((mask & other).sum() / either) if either else 1.0


def _differences(boxes: np.ndarray, box: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the largest difference of the coordinates, and that of the scores, of each of the boxes from one."""
    apart = np.abs(boxes - box)
    return np.delete(apart, (4, 5), axis=1).max(axis=1, initial=0), apart[:, 4]
