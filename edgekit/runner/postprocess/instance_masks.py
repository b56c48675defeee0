"""Instance masks: boxes in a picture, each with its class and the pixels of its object."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.runner import input_path
from edgekit.runner.boxes import BoxOptions, probability
from edgekit.runner.instance_masks import Decoder, Mask, compressed, object_mask
from edgekit.runner.postprocess.detection import DetectedBox, Detection

if TYPE_CHECKING:
    from edgekit.runner.bundle.manifest import Manifest, RawSpec


@dataclass(frozen=True)
class DetectedInstance(DetectedBox):
    """One object with its mask, which is computed from `mask_arguments`, those of `object_mask`, when it is first used.

    `size` is the height and width of the picture that the mask is for.
    """

    size: tuple[int, int] = (0, 0)
    mask_arguments: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def mask(self) -> Mask:
        """The pixels of the object in a part of the picture."""
        return object_mask(sides=self.box, **self.mask_arguments)

    def describe(self) -> str:
        """Return the box and the size of the mask in words."""
        return f"{super().describe()}, {int(self.mask.pixels.sum()):,} pixels"

    def to_dict(self) -> dict[str, Any]:
        """Return the box with the mask as `segmentation`, run-length encoded as in COCO's results."""
        encoded = compressed(self.mask.in_picture(self.size))
        return {"label": self.label, "probability": self.probability, "box": list(self.box), "segmentation": encoded}


def map_to_picture(detection: Detection, raw: RawSpec, size: tuple[int, int]) -> Detection:
    """Return the answer with boxes and masks in pixels of the original picture of (width, height)."""
    resize = input_path.find_step(raw.steps, "resize_picture")
    if resize is None or resize["fit"] == "crop":
        return detection
    place = input_path.picture_transform(size, resize)
    grid = {"start": (place.left, place.top), "step": (place.scale_x, place.scale_y)}

    def instance(each: Any) -> DetectedInstance:
        return replace(
            each, box=place.to_picture(each.box), size=size[::-1], mask_arguments={**each.mask_arguments, **grid}
        )

    return replace(detection, boxes=[instance(each) for each in detection.boxes])


def make_postprocessor(manifest: Manifest) -> Callable[[np.ndarray, int, dict[str, float]], Detection]:
    """See `edgekit.runner.postprocess`. The answer is a `Detection` of `DetectedInstance`."""
    labels, size = manifest.labels, manifest.raw.shape[:2]
    decode = Decoder(size, manifest.output_shape[0], BoxOptions(**manifest.boxes or {}))

    def answer(outputs: np.ndarray, top_k: int, timing_ms: dict[str, float]) -> Detection:
        found, coefficients, prototypes = decode(outputs)
        rows = zip(found.sides.tolist(), found.logits.tolist(), found.classes.tolist(), coefficients)
        boxes: list[DetectedBox] = [
            DetectedInstance(
                labels[kind],
                probability(logit),
                tuple(sides),
                (size[0], size[1]),
                {"coefficients": weights, "prototypes": prototypes},
            )
            for sides, logit, kind, weights in rows
        ]
        return Detection(boxes, timing_ms)

    return answer
