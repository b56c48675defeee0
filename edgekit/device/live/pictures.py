"""Pictures with the answers drawn into them, for the page and for messages."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.runner import drawing

if TYPE_CHECKING:
    from edgekit.runner.bundle.manifest import Manifest

MOST_WIDTH = 1280
QUALITY = 80
BILINEAR = 2


def draw_answers(
    pixels: np.ndarray, predictions: Iterable[tuple[str, Any]], manifests: Mapping[str, Manifest]
) -> np.ndarray:
    """Return a copy of a picture uint8 (height, width, 1 or 3) with the answers of the models to it, as RGB.

    Classes and values, which have no place in the picture, are written into its corner.
    """
    if pixels.shape[2] == 1:
        pixels = np.repeat(pixels, 3, axis=2)
    for model, prediction in predictions:
        manifest = manifests[model]
        if drawing.has_place(manifest):
            pixels = drawing.draw(pixels, prediction, manifest)
        else:
            pixels = drawing.draw_text(pixels, *_caption(prediction, manifest.labels))
    return pixels


def _caption(prediction: Any, labels: list[str]) -> tuple[str, int, float | None]:
    """Return the label to write into a picture, the number of its colour, and its probability."""
    top = getattr(prediction, "top", None)
    if top:
        return top[0][0], labels.index(top[0][0]), top[0][1]
    return prediction.lines()[0], 0, None


def encode_jpeg(pixels: np.ndarray) -> bytes:
    """Return a picture uint8 (height, width, 3) as JPEG, at most `MOST_WIDTH` pixels wide."""
    from PIL import Image

    image = Image.fromarray(np.ascontiguousarray(pixels))
    if image.width > MOST_WIDTH:
        image = image.resize((MOST_WIDTH, max(1, round(image.height * MOST_WIDTH / image.width))), BILINEAR)
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=QUALITY)
    return buffer.getvalue()
