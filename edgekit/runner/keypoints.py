"""Turn the outputs of a network that predicts keypoints into boxes, each with the keypoints of its object.

Outputs are (points, 6 + 3 · keypoints), of which the first four are those of `boxes`. Two columns follow: the logit of
the most probable class, and the number of this class in thousandths. Each keypoint has its x and y, measured in strides
from the centre of the point's cell, and the logit of its visibility. Every step is element-wise float32 arithmetic, as
it is for boxes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgekit.runner import boxes
from edgekit.runner.boxes import FIELDS, Boxes, BoxOptions

VALUES = 3
"""Numbers of a keypoint: x, y, and the logit of its visibility."""
MIN_VISIBILITY = 0.5
"""Probability from which a keypoint counts as visible."""


class Decoder:
    """Converts outputs (points, 6 + 3 · keypoints) for pictures of one (height, width)."""

    def __init__(self, size: Sequence[int], points: int, options: BoxOptions = boxes.DEFAULT) -> None:
        self._boxes = boxes.Decoder(size, points, options)

    def __call__(self, outputs: np.ndarray) -> tuple[Boxes, np.ndarray]:
        """Return the boxes, and their keypoints (n, keypoints, 3): x and y in pixels, logit of the visibility."""
        decoder = self._boxes
        found, points = decoder.best_classes(outputs)
        keypoints = outputs[points, FIELDS:].reshape(len(points), (outputs.shape[1] - FIELDS) // VALUES, VALUES)
        keypoints[..., :2] *= decoder.reaches[points, None, 2:]
        keypoints[..., :2] += decoder.places[points, None, :2]
        return found, keypoints
