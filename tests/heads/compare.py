"""Match the boxes of a bundle one to one with those that a package finds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

MAX_PIXELS, MAX_SCORE = 0.5, 1e-3
"""Differences up to which two boxes are the same."""


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
        Boxes of the bundle at the place of another one of the package, with another class and a lower score.
    additional
        Other boxes of the bundle without one of the package.
    pixels, score
        The largest difference of a coordinate and of a score between boxes that are the same.
    """

    pictures: int
    boxes: int
    missing: int
    second_classes: int
    additional: int
    pixels: float
    score: float

    @property
    def is_equal(self) -> bool:
        """Whether each box of the package is one of the bundle, which has only second classes beside them."""
        return self.boxes > 0 and self.missing == self.additional == 0


def compare(answers: Sequence[np.ndarray], expected: Sequence[np.ndarray], least: float) -> Comparison:
    """Compare boxes (n, 6 + 2 · keypoints) of each picture: the sides, score, class, and x and y of each keypoint.

    Each box of the package, the most probable first, takes the nearest box of its class that no other one has taken.
    Boxes whose score is `least` but for rounding may be on one side only, and boxes without area are left out.
    """
    missing = additional = second = 0
    pixels, scores = [0.0], [0.0]
    expected = [each[(each[:, 2] > each[:, 0]) & (each[:, 3] > each[:, 1])] for each in expected]
    for own, other in zip(answers, expected, strict=True):
        free = np.ones(len(own), dtype=bool)
        for box in other[np.argsort(-other[:, 4], kind="stable")]:
            far, unlike = _differences(own, box)
            same = free & (own[:, 5] == box[5]) & (far <= MAX_PIXELS) & (unlike <= MAX_SCORE)
            if not same.any():
                missing += box[4] > least + MAX_SCORE
                continue
            nearest = int(np.argmin(np.where(same, far + unlike, np.inf)))
            free[nearest] = False
            pixels.append(float(far[nearest]))
            scores.append(float(unlike[nearest]))
        for box in own[free & (own[:, 4] > least + MAX_SCORE)]:
            far, _ = _differences(other, box)
            is_second = bool(((far <= MAX_PIXELS) & (other[:, 5] != box[5]) & (other[:, 4] >= box[4])).any())
            second += is_second
            additional += not is_second
    return Comparison(
        len(expected), sum(map(len, expected)), int(missing), second, additional, max(pixels), max(scores)
    )


def _differences(boxes: np.ndarray, box: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the largest difference of the coordinates, and that of the scores, of each of the boxes from one."""
    apart = np.abs(boxes - box)
    return np.delete(apart, (4, 5), axis=1).max(axis=1, initial=0), apart[:, 4]
