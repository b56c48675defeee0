"""Object detection: boxes in a picture, each with its class and probability."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.runner import input_path
from edgekit.runner.boxes import BoxOptions, Decoder, probability

if TYPE_CHECKING:
    from edgekit.runner.bundle.manifest import Manifest, RawSpec


@dataclass(frozen=True)
class DetectedBox:
    """One object: `box` is left, top, right, bottom in pixels of the sample, `probability` is from 0 to 1."""

    label: str
    probability: float
    box: tuple[float, float, float, float]

    def to_dict(self) -> dict[str, Any]:
        """Return the box as a dict for JSON."""
        return {**vars(self), "box": list(self.box)}

    def describe(self) -> str:
        """Return the sides of the box in words."""
        left, top, right, bottom = self.box
        return f"from {left:.0f}, {top:.0f} to {right:.0f}, {bottom:.0f}"


@dataclass(frozen=True)
class Detection:
    """The objects in a picture, most probable first."""

    boxes: list[DetectedBox]
    timing_ms: dict[str, float]

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as a dict for JSON."""
        return {"boxes": [each.to_dict() for each in self.boxes], "timing_ms": self.timing_ms}

    def lines(self) -> list[str]:
        """Return the answer as lines of text. The first line is printed after the name of the input."""
        counts: dict[str, int] = {}
        for each in self.boxes:
            counts[each.label] = counts.get(each.label, 0) + 1
        first = ", ".join(f"{count} {label}" for label, count in counts.items()) or "nothing"
        return [first, *(f"  {each.probability:7.2%}  {each.label} {each.describe()}" for each in self.boxes)]


def map_to_picture(detection: Detection, raw: RawSpec, size: tuple[int, int]) -> Detection:
    """Return the detection with boxes in pixels of the original picture of (width, height)."""
    resize = input_path.find_step(raw.steps, "resize_picture")
    if resize is None or resize["fit"] == "crop":
        return detection
    transform = input_path.picture_transform(size, resize)
    return replace(detection, boxes=[replace(each, box=transform.to_picture(each.box)) for each in detection.boxes])


def make_postprocessor(manifest: Manifest) -> Callable[[np.ndarray, int, dict[str, float]], Detection]:
    """See `edgekit.runner.postprocess`."""
    labels = manifest.labels
    decode = Decoder(manifest.raw.shape[:2], manifest.output_shape[0], BoxOptions(**manifest.boxes or {}))

    def answer(outputs: np.ndarray, top_k: int, timing_ms: dict[str, float]) -> Detection:
        decoded = decode(outputs)
        rows = zip(decoded.sides.tolist(), decoded.logits.tolist(), decoded.classes.tolist())
        boxes = [DetectedBox(labels[kind], probability(logit), tuple(sides)) for sides, logit, kind in rows]
        return Detection(boxes, timing_ms)

    return answer
