"""Pictures with the answers drawn into them, for the page and for messages."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np

from edgekit.runner import drawing, postprocess

if TYPE_CHECKING:
    from edgekit.runner.bundle.manifest import Manifest

MOST_WIDTH = 1280
QUALITY = 80
BILINEAR = 2


class Painter:
    """Draws a model's answers into their pictures."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest, self._has_place = manifest, drawing.has_place(manifest)
        is_derived = self._has_place or manifest.task == "classification"
        self._answer = postprocess.make_postprocessor(manifest) if is_derived else None
        self._in_picture = postprocess.picture_mapper(manifest)

    def draw(self, pixels: np.ndarray, outputs: np.ndarray, text: str) -> np.ndarray:
        """Return a copy of a picture uint8 (height, width, 1 or 3) with the answer in it, as RGB.

        The answer is derived from the model's outputs. `text` is the answer in a few words: it is written into the
        corner if the answer has no place in the picture, such as a class.
        """
        if pixels.shape[2] == 1:
            pixels = np.repeat(pixels, 3, axis=2)
        if self._answer is None:
            return drawing.draw_text(pixels, text, 0)
        answer = self._answer(outputs, 1, {})
        if not self._has_place:
            return drawing.draw_text(pixels, answer.label, answer.index, answer.top[0][1])
        if self._in_picture is not None:
            answer = self._in_picture(answer, self._manifest.raw, (pixels.shape[1], pixels.shape[0]))
        return drawing.draw(pixels, answer, self._manifest)


def encode_jpeg(pixels: np.ndarray) -> bytes:
    """Return a picture uint8 (height, width, 1 or 3) as JPEG, at most `MOST_WIDTH` pixels wide."""
    from PIL import Image

    image = Image.fromarray(np.ascontiguousarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels))
    if image.width > MOST_WIDTH:
        image = image.resize((MOST_WIDTH, max(1, round(image.height * MOST_WIDTH / image.width))), BILINEAR)
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=QUALITY)
    return buffer.getvalue()
