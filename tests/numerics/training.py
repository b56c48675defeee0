"""How samples were prepared where the network was trained: rightly, and wrongly in all the usual ways.

Pillow in float resizes as the runner does, from other code. Every function takes (n, 24, 24, 3) uint8 and gives
(n, 3, 16, 16) float32, as `convert.reference_preprocess` asks.
"""

from __future__ import annotations

import numpy as np
from clean_pipeline import SIDE
from PIL import Image

MEAN, STD = np.array([0.5, 0.4, 0.3]), np.array([0.25, 0.2, 0.3])


def _resized(raw: np.ndarray, filter: Image.Resampling = Image.Resampling.BILINEAR) -> np.ndarray:
    """(n, 16, 16, 3) float."""

    def one(channel: np.ndarray) -> np.ndarray:
        return np.asarray(Image.fromarray(channel.astype(np.float32)).resize((SIDE, SIDE), filter))

    return np.stack([np.stack([one(picture[..., each]) for each in range(3)], axis=-1) for picture in raw])


def _normal(x: np.ndarray) -> np.ndarray:
    return (x / 255 - MEAN) / STD


def _in_front(x: np.ndarray) -> np.ndarray:
    return x.transpose(0, 3, 1, 2).astype(np.float32)


def right(raw: np.ndarray) -> np.ndarray:
    return _in_front(_normal(_resized(raw)))


def reshaped(raw: np.ndarray) -> np.ndarray:
    """Reshaped where it should be transposed."""
    return _normal(_resized(raw)).reshape(len(raw), 3, SIDE, SIDE).astype(np.float32)


def channels_last(raw: np.ndarray) -> np.ndarray:
    return _normal(_resized(raw)).astype(np.float32)


def exchanged(raw: np.ndarray) -> np.ndarray:
    """Columns for rows."""
    return right(raw.transpose(0, 2, 1, 3))


def bgr(raw: np.ndarray) -> np.ndarray:
    return right(raw[..., ::-1])


def nearest(raw: np.ndarray) -> np.ndarray:
    return _in_front(_normal(_resized(raw, Image.Resampling.NEAREST)))


def off_by_one(raw: np.ndarray) -> np.ndarray:
    """A crop that begins one pixel too far right, after the resize."""
    padded = np.pad(_resized(raw), ((0, 0), (0, 0), (0, 1), (0, 0)), mode="edge")[:, :, 1:]
    return _in_front(_normal(padded))
