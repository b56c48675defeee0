"""Combine the boxes of one detector's answers with the scores of another's, to see which of the two makes a difference.

Both have the same points, such as a float file and the int8 file that was made from it. What a combination gains over
the int8 file is what the replaced values had lost.
"""

from __future__ import annotations

import numpy as np

from edgekit.core.schema.branches import Branch
from edgekit.core.tasks import detection
from edgekit.runner import boxes

COLUMNS: dict[Branch, slice] = {"boxes": slice(None, boxes.BOX_SIDES), "scores": slice(boxes.BOX_SIDES, None)}
Part = tuple[Branch, int | None]
"""Boxes or scores, and the stride of a grid in pixels, or None for all points."""


def combinations(expected: np.ndarray, answers: np.ndarray, size: tuple[int, int]) -> dict[Part, np.ndarray]:
    """Return answers (n, points, 4 + classes) in which the values of each part are those of other answers.

    All boxes and all scores come first. Single grids follow if the points are those of several grids over an image of
    (height, width).
    """
    strides = boxes.point_centres(size, answers.shape[1])[1][:, 0]
    grids = [int(stride) for stride in np.unique(strides)]
    result: dict[Part, np.ndarray] = {}
    for stride in (None, *(grids if len(grids) > 1 else ())):
        rows = np.ones(len(strides), dtype=bool) if stride is None else strides == stride
        for branch, columns in COLUMNS.items():
            combined = answers.copy()
            combined[:, rows, columns] = expected[:, rows, columns]
            result[branch, stride] = combined
    return result


def describe_difference(expected: np.ndarray, answers: np.ndarray, inputs: np.ndarray) -> str:
    """Say how many answers are equal to the expected ones with their boxes, and with their scores.

    `inputs` (n, channels, height, width) have the size of the image.
    """
    size = (int(inputs.shape[2]), int(inputs.shape[3]))
    shares = {
        part: float(np.mean(detection.same_answers(expected, each, inputs)))
        for part, each in combinations(expected, answers, size).items()
    }
    best = max((part for part in shares if part[1] is None), key=lambda part: shares[part])
    grid = max((part for part in shares if part[0] == best[0] and part[1]), key=lambda part: shares[part], default=None)
    alone = f" (of the grid of {grid[1]} pixels alone {shares[grid]:.4f})" if grid else ""
    boxes_share, scores_share = (
        f"{shares[branch, None]:.4f}{alone if branch == best[0] else ''}" for branch in ("boxes", "scores")
    )
    return f"with the boxes of the float file, the fraction is {boxes_share}, with its scores {scores_share}"
