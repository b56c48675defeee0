"""Segmentation: the class of each pixel of a picture, and each class's share of it."""

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
    """The class of each pixel: `mask` (height, width) uint8 holds indices into `labels`."""

    labels: list[str]
    mask: np.ndarray
    timing_ms: dict[str, float]

    @cached_property
    def shares(self) -> dict[str, float]:
        """Each class's fraction of the pixels, from 0 to 1."""
        counts = np.zeros(len(self.labels), np.int64)
        for row in self.mask:  # row by row, because NumPy needs eight bytes per pixel for counting
            counts += np.bincount(row, minlength=len(self.labels))
        return dict(zip(self.labels, (counts / self.mask.size).tolist()))

    def to_dict(self) -> dict[str, Any]:
        """Return the shares and one mask per class present, run-length encoded as in COCO."""
        runs = masks.run_lengths(self.mask).items()
        encoded = [{"label": self.labels[kind], **rle} for kind, rle in runs]
        return {"shares": self.shares, "masks": encoded, "timing_ms": self.timing_ms}

    def lines(self) -> list[str]:
        """Return the answer as lines of text. The first line is printed after the name of the input."""
        ranked = sorted(self.shares.items(), key=lambda pair: -pair[1])
        return [ranked[0][0], *(f"  {fraction:7.2%}  {label}" for label, fraction in ranked if fraction)]


def map_to_picture(segmentation: Segmentation, raw: RawSpec, size: tuple[int, int]) -> Segmentation:
    """Return the segmentation with one mask pixel per pixel of the original picture of (width, height)."""
    resize = input_path.find_step(raw.steps, "resize_picture")
    if resize is None or resize["fit"] == "crop":
        return segmentation
    transform, (width, height) = input_path.picture_transform(size, resize), size
    rows = transform.top + masks.nearest_indices(height, transform.height)
    return replace(
        segmentation,
        mask=segmentation.mask[rows[:, None], transform.left + masks.nearest_indices(width, transform.width)],
    )


def make_postprocessor(manifest: Manifest) -> Callable[[np.ndarray, int, dict[str, float]], Segmentation]:
    """See `edgekit.runner.postprocess`. `top_k` is ignored."""
    labels = manifest.labels
    side = masks.cell_size(manifest.raw.shape[:2], manifest.output_shape[1:])

    def answer(outputs: np.ndarray, top_k: int, timing_ms: dict[str, float]) -> Segmentation:
        return Segmentation(labels, masks.enlarge(outputs.argmax(axis=0).astype(np.uint8), side), timing_ms)

    return answer
