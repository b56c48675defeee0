"""Samples from pictures, where Pillow is installed.

A picture is turned upright by its EXIF tag and converted to Pillow's "L" or "RGB". Then Pillow's bilinear filter
resizes it to the bundle's height and width. The input path declares these steps, and training runs the same code
(`edgekit/data/image_cache.py`). A transparent layer is dropped.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.runner import input_path
from edgekit.runner.errors import InputError
from edgekit.runner.input_path import Step
from edgekit.runner.inputs.windows import Sample

if TYPE_CHECKING:
    from edgekit.runner.bundle.manifest import RawSpec

FORMATS = ("JPEG", "PNG", "WEBP")
MODES = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr")
"""Those with 8 bits a channel: nothing is cut off."""
MOST_PIXELS = 64 << 20
BILINEAR = 2  # Pillow's own numbers; the names for them have moved from version to version
ORIENTATION = 0x0112
TRANSPOSITIONS = {2: 0, 3: 3, 4: 1, 5: 5, 6: 4, 7: 6, 8: 2}
"""EXIF's orientation (JEITA CP-3451, 4.6.4) and Pillow's number of the transposition that undoes it."""
QUARTER_TURNS = (2, 4, 5, 6)
"""Those of Pillow's transpositions that swap width and height."""


def samples(path: str, raw: RawSpec, strict: bool = False) -> Iterator[Sample]:
    """One raw sample (height, width, channels) uint8."""
    if not input_path.find_step(raw.steps, "decode_picture"):
        raise InputError(f"{path}: the bundle takes {raw.dtype}{list(raw.shape)}, not a picture; give it a .npy file")
    Image = import_pillow(path, "give a .npy file")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what Pillow warns of here is an error two lines below
            with Image.open(path, formats=FORMATS) as picture:
                problem = unsupported_reason(picture) or (_strict_problem(picture, raw) if strict else None)
                if problem:
                    raise InputError(f"{path}: {problem}")
                return iter((Sample(decode(picture, raw.steps), size=upright_size(picture, raw.steps)),))
    except InputError:
        raise
    except Exception as error:  # Pillow hands on what its parsers stumble over: struct.error, KeyError, …
        reason = str(error) or type(error).__name__
        raise InputError(f"{path}: cannot be decoded ({reason}); save it again as PNG or JPEG") from None


def pixels(path: str, steps: Sequence[Step]) -> np.ndarray:
    """The picture of a file that `samples` takes, upright in its own size, as uint8 (height, width, 3)."""
    Image = import_pillow(path, "give a .npy file")
    try:
        with Image.open(path, formats=FORMATS) as picture:
            return decode(picture, [{**step, "channels": 3} for step in steps if step["step"] == "decode_picture"])
    except MemoryError:
        raise
    except Exception as error:  # it was read a moment ago, and has changed since
        reason = str(error) or type(error).__name__
        raise InputError(f"{path}: cannot be decoded again ({reason}); leave it alone meanwhile") from None


def decode(picture: Any, steps: Sequence[Step]) -> np.ndarray:
    """An opened Pillow image as a raw sample (height, width, channels) uint8."""
    how = input_path.find_step(steps, "decode_picture")
    assert how is not None
    turn = TRANSPOSITIONS.get(orientation(picture)) if how["orientation"] == "apply" else None
    if turn is not None:
        picture = picture.transpose(turn)
    return fit_picture(picture, how["channels"], input_path.find_step(steps, "resize_picture"))


def fit_picture(picture: Any, channels: int, resize: Step | None) -> np.ndarray:
    """A Pillow image as (height, width, channels) uint8: stretched, cropped around its middle, or between bars."""
    image = picture.convert("L" if channels == 1 else "RGB")
    if resize is not None:
        size = (resize["width"], resize["height"])
        if image.size != size:
            image = _letterbox(image, resize) if resize["fit"] == "letterbox" else _resize(image, size, resize["fit"])
    return np.asarray(image, dtype=np.uint8).reshape(image.height, image.width, channels)


def _resize(image: Any, size: tuple[int, int], how: str) -> Any:
    return image.resize(size, BILINEAR, box=_centre_crop(image.size, size) if how == "crop" else None)


def _letterbox(image: Any, resize: Step) -> Any:
    """The whole picture in the middle, in its own proportions, and black around it."""
    place = input_path.picture_transform(image.size, resize)
    inner = image.resize((place.width, place.height), BILINEAR)
    made = inner.resize((resize["width"], resize["height"]))
    made.paste(0 if image.mode == "L" else (0, 0, 0), (0, 0, *made.size))
    made.paste(inner, (place.left, place.top))
    return made


def upright_size(picture: Any, steps: Sequence[Step]) -> tuple[int, int]:
    """An opened picture's (width, height) after its EXIF orientation, where that is applied."""
    how = input_path.find_step(steps, "decode_picture")
    width, height = picture.size
    turned = (
        how is not None
        and how["orientation"] == "apply"
        and TRANSPOSITIONS.get(orientation(picture), 0) in QUARTER_TURNS
    )
    return (height, width) if turned else (width, height)


def orientation(picture: Any) -> int:
    """EXIF's: 1 where the picture stands upright, or says nothing that can be read."""
    picture.load()  # a PNG loads itself to find its tag: that it is broken must not be swallowed below
    try:
        found = picture.getexif().get(ORIENTATION, 1)
    except Exception:  # a damaged tag turns nothing
        return 1
    return found if isinstance(found, int) else 1


def unsupported_reason(picture: Any) -> str | None:
    """Why an opened Pillow image is no sample: deeper than 8 bits a channel, too large, or moving."""
    deep = any(";16" in str(tile[-1]) for tile in picture.tile)  # Pillow would cut 16 bits a channel down in silence
    if picture.mode not in MODES or deep:
        return f"a picture of mode {picture.mode}{' in 16 bits' if deep else ''}; save it with 8 bits a channel"
    if picture.width * picture.height > MOST_PIXELS:
        return f"{picture.width}×{picture.height} pixels, at most {MOST_PIXELS:,} are read; save it smaller"
    if picture.format == "WEBP" and getattr(picture, "n_frames", 1) > 1:
        return f"{picture.n_frames} moving pictures; save one of them"
    return None


def import_pillow(what: str, instead: str) -> Any:
    """Pillow's `Image`; InputError with the line that installs it, or another way."""
    try:
        from PIL import Image
    except ImportError:
        install = f"{sys.executable} -m pip install pillow"
        raise InputError(f"{what}: needs Pillow; run: {install} (or see `edgerun doctor`); or {instead}") from None
    return Image


def _centre_crop(size: tuple[int, int], wanted: tuple[int, int]) -> tuple[int, int, int, int]:
    """The largest box of the wanted proportions around the middle, in whole pixels: (left, top, right, bottom)."""
    (width, height), (wide, tall) = size, wanted
    kept_width = min(width, max(1, (height * wide + tall // 2) // tall))
    kept_height = min(height, max(1, (width * tall + wide // 2) // wide))
    left, top = (width - kept_width) // 2, (height - kept_height) // 2
    return left, top, left + kept_width, top + kept_height


def _strict_problem(picture: Any, raw: RawSpec) -> str | None:
    """What --strict has against a picture: a step would change its pixels' places."""
    if orientation(picture) != 1:
        return "its EXIF tag says that it must be turned; turn it, or leave --strict out"
    height, width, _ = raw.shape
    if picture.size != (width, height):
        found = f"{picture.width}×{picture.height}"
        return f"{found} pixels, the bundle takes {width}×{height}; bring it to that size, or leave --strict out"
    return None
