"""The classes of pixels as colours over the picture; the first class, often the background, is left clear."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from edgekit.runner.drawing import font, style

if TYPE_CHECKING:
    from edgekit.runner.postprocess.segmentation import Segmentation

PIXELS_A_SCALE = 320
"""Of a picture's shorter side: twice as many, and letters are twice as large."""


def draw(picture: np.ndarray, answer: Segmentation, labels: Sequence[str]) -> np.ndarray:
    """See the package; classes are half their colour, edges all of it, and names stand on the left while they fit."""
    mask = answer.mask
    colours = np.array([style.of(kind).colour for kind in range(len(labels))], np.uint8)[mask]
    edge = np.zeros(mask.shape, bool)
    edge[:, 1:] |= mask[:, 1:] != mask[:, :-1]
    edge[1:] |= mask[1:] != mask[:-1]
    canvas = np.where((mask > 0)[..., None], picture // 2 + colours // 2, picture)
    canvas[edge & (mask > 0)] = colours[edge & (mask > 0)]
    height, width = mask.shape
    scale = max(1, min(height, width) // PIXELS_A_SCALE)
    top, tall, letters = 0, (font.HEIGHT + 2) * scale, (width - scale) // (font.STEP * scale)
    for kind, (label, share) in enumerate(answer.shares.items()):
        look, text = style.of(kind), font.caption(font.plain(label, f"#{kind}"), share, letters)
        if kind and share and text and top + tall <= height:
            ink = font.mask(text, scale)
            part = canvas[top : top + tall, : ink.shape[1] + scale]
            part[:] = look.colour
            part[scale:-scale, scale:][ink] = look.against
            top += tall
    return canvas
