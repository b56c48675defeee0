"""The class of each pixel of a picture, and each class's share of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.runner import input_path, masks

if TYPE_CHECKING:
    from edgekit.runner.bundle.manifest import Manifest, RawSpec


@dataclass(frozen=True)
class Segmentation:
    """`mask` is (height, width) uint8, for each pixel the place of its class among `labels`."""

    labels: list[str]
    mask: np.ndarray
    timing_ms: dict[str, float]

    @cached_property
    def shares(self) -> dict[str, float]:
        """Of the pixels, from 0 to 1, by class."""
        counts = np.zeros(len(self.labels), np.int64)
        for row in self.mask:  # by rows, for numpy counts in eight bytes a pixel
            counts += np.bincount(row, minlength=len(self.labels))
        return dict(zip(self.labels, (counts / self.mask.size).tolist()))

    def to_dict(self) -> dict[str, Any]:
        """For JSON: the shares, and a mask for each class that is there, run-length encoded as COCO does."""
        runs = masks.run_lengths(self.mask).items()
        found = [{"label": self.labels[kind], **rle} for kind, rle in runs]
        return {"shares": self.shares, "masks": found, "timing_ms": self.timing_ms}

    def lines(self) -> list[str]:
        """For people; the first line ends the one that names the input."""
        ranked = sorted(self.shares.items(), key=lambda pair: -pair[1])
        return [ranked[0][0], *(f"  {share:7.2%}  {label}" for label, share in ranked if share)]


def map_to_picture(found: Segmentation, raw: RawSpec, size: tuple[int, int]) -> Segmentation:
    """The same with a pixel for each one of the picture of (width, height) that the sample was made from."""
    resize = input_path.find_step(raw.steps, "resize_picture")
    if resize is None or resize["fit"] == "crop":
        return found
    place, (width, height) = input_path.picture_transform(size, resize), size
    rows = place.top + masks.nearest_indices(height, place.height)
    return replace(found, mask=found.mask[rows[:, None], place.left + masks.nearest_indices(width, place.width)])


def make_postprocessor(manifest: Manifest) -> Callable[[np.ndarray, int, dict[str, float]], Segmentation]:
    """See the package; the number of labels wanted has no meaning here."""
    labels = manifest.labels
    side = masks.cell_size(manifest.raw.shape[:2], manifest.output_shape[1:])

    def answer(outputs: np.ndarray, top_k: int, timing_ms: dict[str, float]) -> Segmentation:
        return Segmentation(labels, masks.enlarge(outputs.argmax(axis=0).astype(np.uint8), side), timing_ms)

    return answer
