"""Samples from pictures, if Pillow is installed.

A picture is turned upright by its EXIF tag and converted to Pillow's "L" or "RGB". Then Pillow resizes it to the
bundle's height and width, with its bilinear filter unless the input path names another. The input path declares these
steps, and training runs the same code (`edgekit/data/image_cache.py`). An alpha channel is dropped.
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
"""Modes with at most 8 bits per channel, so that nothing is truncated."""
MOST_PIXELS = 64 << 20
BILINEAR, BICUBIC, AFFINE = 2, 3, 0  # Pillow's numbers, because their names have moved between versions
ORIENTATION = 0x0112
TRANSPOSITIONS = {2: 0, 3: 3, 4: 1, 5: 5, 6: 4, 7: 6, 8: 2}
"""For each EXIF orientation (JEITA CP-3451, 4.6.4), Pillow's number of the transposition that undoes it."""
QUARTER_TURNS = (2, 4, 5, 6)
"""Pillow's transpositions that swap width and height."""


def samples(path: str, raw: RawSpec, strict: bool = False) -> Iterator[Sample]:
    """Yield one raw sample (height, width, channels) uint8."""
    if not input_path.find_step(raw.steps, "decode_picture"):
        raise InputError(f"{path}: the bundle takes {raw.dtype}{list(raw.shape)}, not a picture; give it a .npy file")
    Image = import_pillow(path, "give a .npy file")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what Pillow warns about here is an error two lines below
            with Image.open(path, formats=FORMATS) as picture:
                problem = unsupported_reason(picture) or (_strict_problem(picture, raw) if strict else None)
                if problem:
                    raise InputError(f"{path}: {problem}")
                return iter((Sample(decode(picture, raw.steps), size=upright_size(picture, raw.steps)),))
    except InputError:
        raise
    except Exception as error:  # Pillow lets its parsers' errors through: struct.error, KeyError, …
        reason = str(error) or type(error).__name__
        raise InputError(f"{path}: cannot be decoded ({reason}); save it again as PNG or JPEG") from None


def pixels(path: str, steps: Sequence[Step]) -> np.ndarray:
    """Return the picture of a file that `samples` accepts, upright and unscaled, as uint8 (height, width, 3)."""
    Image = import_pillow(path, "give a .npy file")
    try:
        with Image.open(path, formats=FORMATS) as picture:
            return decode(picture, [{**step, "channels": 3} for step in steps if step["step"] == "decode_picture"])
    except MemoryError:
        raise
    except Exception as error:  # it could be read a moment ago, so it has changed since
        reason = str(error) or type(error).__name__
        raise InputError(f"{path}: cannot be decoded again ({reason}); do not change it meanwhile") from None


def decode(picture: Any, steps: Sequence[Step]) -> np.ndarray:
    """Convert an opened Pillow image into a raw sample (height, width, channels) uint8."""
    decode_step = input_path.find_step(steps, "decode_picture")
    assert decode_step is not None
    transposition = TRANSPOSITIONS.get(orientation(picture)) if decode_step["orientation"] == "apply" else None
    if transposition is not None:
        picture = picture.transpose(transposition)
    return fit_picture(picture, decode_step["channels"], input_path.find_step(steps, "resize_picture"))


def fit_picture(picture: Any, channels: int, resize: Step | None) -> np.ndarray:
    """Convert a Pillow image to (height, width, channels) uint8: stretched, centre-cropped or letterboxed."""
    image = picture.convert("L" if channels == 1 else "RGB")
    if resize is not None:
        size = (resize["width"], resize["height"])
        if image.size != size:
            image = _letterbox(image, resize) if resize["fit"] == "letterbox" else _resize(image, size, resize)
    return np.asarray(image, dtype=np.uint8).reshape(image.height, image.width, channels)


def _resize(image: Any, size: tuple[int, int], step: Step) -> Any:
    box = _centre_crop(image.size, size, step.get("share", 1.0)) if step["fit"] == "crop" else (0, 0, *image.size)
    return _scale(image, size, step.get("filter"), box)


def _scale(image: Any, size: tuple[int, int], filter: str | None, box: tuple[int, int, int, int]) -> Any:
    """Scale a box of an image to a size.

    The filter "sampled" mixes the four pixels around each point, without smoothing when the image becomes smaller, as
    OpenCV does.
    """
    if filter == "sampled":
        left, top, right, bottom = box
        across, down = (right - left) / size[0], (bottom - top) / size[1]
        edge = image.crop(box)
        return _with_edge(edge).transform(size, AFFINE, (across, 0, 1, 0, down, 1), BILINEAR)
    return image.resize(size, BICUBIC if filter == "bicubic" else BILINEAR, box=box)


def _with_edge(image: Any) -> Any:
    """Return the image with its outermost pixels repeated on each side, because Pillow mixes nothing beyond an edge."""
    wide, tall = image.size
    edged = image.resize((wide + 2, tall + 2), 0, box=(0, 0, wide, tall))
    edged.paste(image.crop((0, 0, wide, 1)), (1, 0))
    edged.paste(image.crop((0, tall - 1, wide, tall)), (1, tall + 1))
    edged.paste(image.crop((0, 0, 1, tall)), (0, 1))
    edged.paste(image.crop((wide - 1, 0, wide, tall)), (wide + 1, 1))
    edged.paste(image, (1, 1))
    return edged


def _letterbox(image: Any, resize: Step) -> Any:
    """Centre the whole picture in its own proportions, between bars of one grey value."""
    transform = input_path.picture_transform(image.size, resize)
    inner = _scale(image, (transform.width, transform.height), resize.get("filter"), (0, 0, *image.size))
    canvas = inner.resize((resize["width"], resize["height"]))
    fill = resize.get("fill", 0)
    canvas.paste(fill if image.mode == "L" else (fill, fill, fill), (0, 0, *canvas.size))
    canvas.paste(inner, (transform.left, transform.top))
    return canvas


def upright_size(picture: Any, steps: Sequence[Step]) -> tuple[int, int]:
    """Return the (width, height) of an opened picture, after its EXIF orientation if that is applied."""
    decode_step = input_path.find_step(steps, "decode_picture")
    width, height = picture.size
    is_turned = (
        decode_step is not None
        and decode_step["orientation"] == "apply"
        and TRANSPOSITIONS.get(orientation(picture), 0) in QUARTER_TURNS
    )
    return (height, width) if is_turned else (width, height)


def orientation(picture: Any) -> int:
    """Return the EXIF orientation: 1 if the picture is upright, or if the tag is missing or unreadable."""
    picture.load()  # a PNG is loaded to find its tag; an error in it must not be swallowed below
    try:
        value = picture.getexif().get(ORIENTATION, 1)
    except Exception:  # a damaged tag is ignored
        return 1
    return value if isinstance(value, int) else 1


def unsupported_reason(picture: Any) -> str | None:
    """Return why an opened Pillow image cannot be a sample, or None.

    It may have more than 8 bits per channel, be too large, or be animated.
    """
    has_16_bits = any(
        ";16" in str(tile[-1]) for tile in picture.tile
    )  # Pillow would silently truncate 16 bits per channel
    if picture.mode not in MODES or has_16_bits:
        return f"a picture of mode {picture.mode}{' in 16 bits' if has_16_bits else ''}; save it with 8 bits a channel"
    if picture.width * picture.height > MOST_PIXELS:
        return f"{picture.width}×{picture.height} pixels, but at most {MOST_PIXELS:,} are read; save it smaller"
    if picture.format == "WEBP" and getattr(picture, "n_frames", 1) > 1:
        return f"{picture.n_frames} moving pictures; save one of them"
    return None


def import_pillow(purpose: str, alternative: str) -> Any:
    """Return Pillow's `Image` module. Raises InputError with the command that installs it, or an alternative."""
    try:
        from PIL import Image
    except ImportError:
        install = f"{sys.executable} -m pip install pillow"
        raise InputError(
            f"{purpose}: needs Pillow; run: {install} (or see `edgerun doctor`); or {alternative}"
        ) from None
    return Image


def _centre_crop(size: tuple[int, int], target: tuple[int, int], share: float) -> tuple[int, int, int, int]:
    """Return a centred box (left, top, right, bottom) with the proportions of `target`, in whole pixels.

    It has this share of the sides of the largest such box.
    """
    (width, height), (target_width, target_height) = size, target
    crop_width = min(width, max(1, (height * target_width + target_height // 2) // target_height))
    crop_height = min(height, max(1, (width * target_height + target_width // 2) // target_width))
    crop_width, crop_height = (max(1, round(side * share)) for side in (crop_width, crop_height))
    left, top = (width - crop_width) // 2, (height - crop_height) // 2
    return left, top, left + crop_width, top + crop_height


def _strict_problem(picture: Any, raw: RawSpec) -> str | None:
    """Return why --strict refuses a picture, or None. A picture must not need to be turned or resized."""
    if orientation(picture) != 1:
        return "its EXIF tag says that it must be turned; turn it, or leave --strict out"
    height, width, _ = raw.shape
    if picture.size != (width, height):
        size = f"{picture.width}×{picture.height}"
        return f"{size} pixels, but the bundle takes {width}×{height}; bring it to that size, or leave --strict out"
    return None
