"""Keypoints: boxes in a picture, each with its class and the points of its object, such as the joints of a person."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.runner import input_path
from edgekit.runner.boxes import BoxOptions, probability
from edgekit.runner.keypoints import MIN_VISIBILITY, Decoder
from edgekit.runner.postprocess.detection import DetectedBox, Detection

if TYPE_CHECKING:
    from edgekit.runner.bundle.manifest import Manifest, RawSpec


@dataclass(frozen=True)
class DetectedPose(DetectedBox):
    """One object with its keypoints: by name x and y in pixels of the sample, and the probability of being visible."""

    keypoints: dict[str, tuple[float, float, float]] = field(default_factory=dict)

    def describe(self) -> str:
        """Return the box and the number of visible keypoints in words."""
        visible = sum(seen >= MIN_VISIBILITY for _, _, seen in self.keypoints.values())
        return f"{super().describe()}, {visible} of {len(self.keypoints)} keypoints"


def map_to_picture(detection: Detection, raw: RawSpec, size: tuple[int, int]) -> Detection:
    """Return the answer with boxes and keypoints in pixels of the original picture of (width, height).

    Unlike a side of a box, a keypoint may lie outside the picture.
    """
    resize = input_path.find_step(raw.steps, "resize_picture")
    if resize is None or resize["fit"] == "crop":
        return detection
    place = input_path.picture_transform(size, resize)

    def pose(each: Any) -> DetectedPose:
        points = {
            name: ((x - place.left) / place.scale_x, (y - place.top) / place.scale_y, seen)
            for name, (x, y, seen) in each.keypoints.items()
        }
        return replace(each, box=place.to_picture(each.box), keypoints=points)

    return replace(detection, boxes=[pose(each) for each in detection.boxes])


def make_postprocessor(manifest: Manifest) -> Callable[[np.ndarray, int, dict[str, float]], Detection]:
    """See `edgekit.runner.postprocess`. The answer is a `Detection` of `DetectedPose`."""
    labels, names = manifest.labels, (manifest.keypoints or {})["names"]
    decode = Decoder(manifest.raw.shape[:2], manifest.output_shape[0], BoxOptions(**manifest.boxes or {}))

    def answer(outputs: np.ndarray, top_k: int, timing_ms: dict[str, float]) -> Detection:
        found, points = decode(outputs)
        rows = zip(found.sides.tolist(), found.logits.tolist(), found.classes.tolist(), points.tolist())
        boxes: list[DetectedBox] = [
            DetectedPose(
                labels[kind],
                probability(logit),
                tuple(sides),
                {name: (x, y, probability(seen)) for name, (x, y, seen) in zip(names, values)},
            )
            for sides, logit, kind, values in rows
        ]
        return Detection(boxes, timing_ms)

    return answer
