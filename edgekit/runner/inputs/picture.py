"""Samples from pictures, where Pillow is installed.

A picture becomes what it became in training (`edgekit/data/pictures.py`): Pillow's "L" or "RGB", then its bilinear
resize to the bundle's height and width. A transparent layer is dropped, and so is a camera's note to turn the picture.
"""

from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.runner.errors import InputError

if TYPE_CHECKING:
    from edgekit.runner.manifest import RawSpec

MODES = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr")
"""Those with 8 bits a channel: nothing is cut off."""
MOST_PIXELS = 64 << 20
BILINEAR = 2  # Pillow's own number; the name for it has moved from version to version


def read(path: str, raw: RawSpec) -> np.ndarray:
    """One raw sample (height, width, channels) uint8."""
    if raw.kind != "image" or raw.dtype != "uint8":
        raise InputError(f"{path}: the bundle takes {raw.dtype}{list(raw.shape)}, not a picture; give it a .npy file")
    Image = pillow(path, "give a .npy file")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what Pillow warns of here is an error two lines below
            with Image.open(path, formats=("JPEG", "PNG")) as picture:
                _check(path, picture)
                return fit(picture, raw)
    except InputError:
        raise
    except Exception as error:  # Pillow hands on what its parsers stumble over: struct.error, KeyError, …
        reason = str(error) or type(error).__name__
        raise InputError(f"{path}: cannot be decoded ({reason}); save it again as PNG or JPEG") from None


def fit(picture: Any, raw: RawSpec) -> np.ndarray:
    """A Pillow image brought to (height, width, channels) uint8."""
    height, width, channels = raw.shape
    image = picture.convert("L" if channels == 1 else "RGB")
    if image.size != (width, height):
        image = image.resize((width, height), BILINEAR)
    return np.asarray(image, dtype=np.uint8).reshape(raw.shape)


def pillow(what: str, instead: str) -> Any:
    """Pillow's `Image`; InputError with the line that installs it, or another way."""
    try:
        from PIL import Image
    except ImportError:
        install = f"{sys.executable} -m pip install pillow"
        raise InputError(f"{what}: needs Pillow; run: {install} (or see `edgerun doctor`); or {instead}") from None
    return Image


def _check(path: str, picture: Any) -> None:
    deep = any(";16" in str(tile[-1]) for tile in picture.tile)  # Pillow would cut 16 bits a channel down in silence
    if picture.mode not in MODES or deep:
        raise InputError(
            f"{path}: a picture of mode {picture.mode}{' in 16 bits' if deep else ''}; save it with 8 bits a channel"
        )
    if picture.width * picture.height > MOST_PIXELS:
        raise InputError(
            f"{path}: {picture.width}×{picture.height} pixels, at most {MOST_PIXELS:,} are read; save it smaller"
        )
