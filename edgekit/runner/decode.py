"""Samples from files: `.npy` always, pictures where Pillow is installed.

A picture becomes the raw sample that the bundle promises: grey or RGB, resized by Pillow's bilinear filter.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.runner.errors import InputError

if TYPE_CHECKING:
    from edgekit.runner.manifest import RawSpec

PICTURES = (".png", ".jpg", ".jpeg")


def read(path: Path, raw: RawSpec) -> np.ndarray:
    """One raw sample; InputError when the file cannot be read as one."""
    suffix = path.suffix.lower()
    if suffix != ".npy" and suffix not in PICTURES:
        raise InputError(f"{path}: cannot read {suffix or 'a file without suffix'}; use .npy, {', '.join(PICTURES)}")
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    return _array(path) if suffix == ".npy" else _picture(path, raw)


def _array(path: Path) -> np.ndarray:
    try:
        value = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"{path}: not a plain .npy array ({error})") from None
    if not isinstance(value, np.ndarray):
        raise InputError(f"{path}: an archive of arrays; save one sample with numpy.save")
    return value


def _picture(path: Path, raw: RawSpec) -> np.ndarray:
    if raw.kind != "image" or raw.dtype != "uint8":
        raise InputError(f"{path}: the bundle takes {raw.dtype}{list(raw.shape)}, not a picture; give it a .npy file")
    try:
        from PIL import Image
    except ImportError:
        raise InputError(f"{path}: pictures need Pillow; run: pip install pillow, or give a .npy file") from None
    height, width, channels = raw.shape
    bomb: Any = Image.DecompressionBombError
    try:
        with Image.open(path) as picture:
            if picture.mode[0] in "IF":
                raise InputError(f"{path}: a picture of mode {picture.mode}; save it with 8 bits a channel")
            image = picture.convert("L" if channels == 1 else "RGB")
    except (OSError, ValueError, SyntaxError, bomb) as error:
        raise InputError(f"{path}: cannot be decoded ({error})") from None
    if image.size != (width, height):
        image = image.resize((width, height), Image.Resampling.BILINEAR)
    return np.asarray(image, dtype=np.uint8).reshape(raw.shape)
