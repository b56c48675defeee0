"""Raw video frames from a pipe, as a camera tool or ffmpeg writes them: one after another, without headers.

    ffmpeg -i clip.mp4 -f rawvideo -pix_fmt rgb24 - | edgerun predict BUNDLE --stream rgb24 --size 640x480
    rpicam-vid -n -t 0 --codec yuv420 --width 640 --height 480 -o - | edgerun predict BUNDLE --stream yuv420p …

The format names are ffmpeg's. Nothing in the bytes marks the start of a frame, so the size must match the sender's.
rpicam-vid pads its rows to a multiple of 64 pixels, so ask it for such a width. A single buffer holds the frame that is
being read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.runner import input_path
from edgekit.runner.errors import InputError
from edgekit.runner.inputs import picture

if TYPE_CHECKING:
    from edgekit.runner.bundle.manifest import RawSpec

Decode = Callable[[np.ndarray, int, int], np.ndarray]
OnFrame = Callable[[np.ndarray], object]


def frames(
    source: Any, pixels: str, width: int, height: int, raw: RawSpec, on_frame: OnFrame | None = None
) -> Iterator[tuple[np.ndarray, float]]:
    """Yield raw samples, each with the milliseconds from the arrival of its frame's first bytes until it was ready.

    A sample is valid only until the next one is read.

    `source` is a binary file with `readinto`. `on_frame` is called with each unmodified frame, uint8 (height, width,
    channels), just before its sample is yielded. Raises InputError if the last frame is incomplete, after all complete
    ones were yielded.
    """
    if raw.kind != "image" or raw.dtype != "uint8":
        raise InputError(f"--stream: the bundle takes {raw.kind} {raw.dtype}{list(raw.shape)}, not frames of a camera")
    decode, frame_bytes = DECODERS[pixels], frame_size_bytes(pixels, width, height)
    if (height, width, CHANNELS[pixels]) != raw.shape:
        sample_height, sample_width, channels = raw.shape
        ffmpeg_options = f"-vf scale={sample_width}:{sample_height} -pix_fmt {'gray' if channels == 1 else 'rgb24'}"
        picture.import_pillow("--stream: bringing frames to the bundle's size", f"let ffmpeg do it: {ffmpeg_options}")
    buffer = bytearray(frame_bytes)
    number = 0
    while True:
        filled, started = _fill(source, memoryview(buffer))
        if filled < frame_bytes:
            break
        frame = decode(np.frombuffer(buffer, np.uint8), width, height)
        sample = fit_frame(frame, raw)
        read_ms = (perf_counter_ns() - started) / 1e6
        if on_frame is not None:
            on_frame(frame)
        yield sample, read_ms
        number += 1
    if filled:
        raise InputError(
            f"frame {number}: cut short: {filled} bytes arrived, but a {pixels} frame of {width}x{height} "
            f"has {frame_bytes}; "
            "check --size and --stream against what is sent"
        )
    if number == 0:
        raise InputError("--stream: no frame arrived; check the output of the program before the pipe")


def frame_size_bytes(pixels: str, width: int, height: int) -> int:
    """Return the bytes of one frame. Half sizes of yuv420p's colour planes are rounded up, as in ffmpeg."""
    if pixels == "yuv420p":
        return width * height + 2 * (-(-width // 2)) * (-(-height // 2))
    return width * height * CHANNELS[pixels]


def _fill(source: Any, view: memoryview) -> tuple[int, int]:
    """Fill the view from the source. Returns the number of bytes read, and when the first of them arrived.

    Only at the end of the stream are there fewer bytes than the view can hold.
    """
    filled = source.readinto(view) or 0
    started = perf_counter_ns()
    while 0 < filled < len(view):
        count = source.readinto(view[filled:])
        if not count:
            break
        filled += count
    return filled, started


def fit_frame(frame: np.ndarray, raw: RawSpec) -> np.ndarray:
    """Fit a frame as a picture from a file would be fitted."""
    if frame.shape == raw.shape:
        return np.ascontiguousarray(frame)
    from PIL import Image

    is_grey = frame.shape[2] == 1
    image = Image.fromarray(frame[..., 0] if is_grey else np.ascontiguousarray(frame))
    return picture.fit_picture(image, raw.shape[2], input_path.find_step(raw.steps, "resize_picture"))


def _rgb24(buffer: np.ndarray, width: int, height: int) -> np.ndarray:
    return buffer.reshape(height, width, 3)


def _bgr24(buffer: np.ndarray, width: int, height: int) -> np.ndarray:
    return buffer.reshape(height, width, 3)[..., ::-1]


def _gray(buffer: np.ndarray, width: int, height: int) -> np.ndarray:
    return buffer.reshape(height, width, 1)


def _yuv420p(buffer: np.ndarray, width: int, height: int) -> np.ndarray:
    """Convert from ITU-R BT.601 in limited range (luma 16 to 235). Each colour sample applies to four pixels.

    The factors are those of the inverse of the matrix in BT.601-7 (sections 2.5.1 to 2.5.3), times 2^16: 255/219 for
    luma, and for the colours 255/224 times 1.402 (Cr, added to red), 0.344136 and 0.714136 (Cb and Cr, subtracted from
    green) and 1.772 (Cb, added to blue).
    """
    tall, wide = -(-height // 2), -(-width // 2)
    luma, colours = buffer[: width * height], buffer[width * height :].reshape(2, tall, wide)
    blue, red = colours.astype(np.int32) - 128
    grey = (luma.reshape(height, width).astype(np.int32) - 16) * 76309 + 32768
    rgb = np.empty((height, width, 3), np.uint8)
    for channel, colour in enumerate((104597 * red, -25675 * blue - 53279 * red, 132201 * blue)):
        value = grey + colour.repeat(2, axis=0)[:height].repeat(2, axis=1)[:, :width]
        value >>= 16
        rgb[..., channel] = np.clip(value, 0, 255, out=value)
    return rgb


DECODERS: dict[str, Decode] = {"rgb24": _rgb24, "bgr24": _bgr24, "gray": _gray, "yuv420p": _yuv420p}
CHANNELS = {"rgb24": 3, "bgr24": 3, "gray": 1, "yuv420p": 3}
