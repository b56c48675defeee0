"""The camera of a Raspberry Pi: `rpicam`, or `rpicam:1` for the second.

`rpicam-vid` writes uncompressed pictures to ffmpeg; without it, the package picamera2 is used. For the codec `yuv420`,
as for `mjpeg`, rpicam-vid asks libcamera for the colour space of JPEG in every size (Sycc: full range, the matrix of
BT.601), and for Rec709 or Smpte170m, which have a limited range, only for other codecs: `get_colourspace_flags` in
apps/rpicam_vid.cpp and `ConfigureVideo` in core/rpicam_app.cpp of rpicam-apps. Rows have a multiple of ROW_PIXELS
pixels.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.device.live.sources import address, base, ffmpeg
from edgekit.runner.errors import InputError

if TYPE_CHECKING:
    from edgekit.device.live.sources.options import SourceOptions
    from edgekit.runner.bundle.manifest import RawSpec

SCHEMES = ("rpicam",)
PROGRAMS = ("rpicam-vid", "libcamera-vid")
"""The program, and its name before Raspberry Pi OS 12."""
SIZE = (1280, 720)
RATE = 30.0
ROW_PIXELS = 64


class RpicamSource(ffmpeg.FfmpegSource):
    """Frames from rpicam-vid."""

    has_size = True

    def _input(self) -> ffmpeg.Input:
        program = next(filter(None, map(shutil.which, PROGRAMS)), None)
        if program is None:
            raise InputError(f"{self.address.shown}: rpicam-vid is not installed; run: sudo apt install rpicam-apps")
        width, height = self.options.size or SIZE
        rate = f"{self.options.rate or RATE:g}"
        asked = ("--width", str(width), "--height", str(height), "--framerate", rate)
        camera = ("--codec", "yuv420", "--camera", self.address.rest or "0")
        feeder = (program, "-n", "-t", "0", "--flush", *camera, *asked, "-o", "-")
        row = -(-width // ROW_PIXELS) * ROW_PIXELS
        raw = ("-f", "rawvideo", "-pixel_format", "yuvj420p", "-video_size", f"{row}x{height}", "-framerate", rate)
        return ffmpeg.Input((*raw, "-i", "pipe:0"), feeder=feeder, filters=(f"crop={width}:{height}:0:0:exact=1",))


class Picamera2Source(base.Source):
    """Frames from the package picamera2."""

    has_size = True

    def _connect(self) -> Iterator[np.ndarray]:
        from picamera2 import Picamera2  # only on a Raspberry Pi

        shown, camera = self.address.shown, None
        try:
            camera = Picamera2(int(self.address.rest or 0))
            # In its names the last letter is the first byte: "BGR888" are arrays in the order R, G, B.
            main: dict[str, Any] = {"size": self.options.size or SIZE, "format": "BGR888"}
            controls = {"FrameRate": self.options.rate or RATE}
            camera.configure(camera.create_video_configuration(main=main, controls=controls))
            camera.start()
            while not self._closed.is_set():
                yield camera.capture_array("main")
        except (RuntimeError, IndexError, OSError, ValueError) as error:
            raise InputError(f"{shown}: picamera2: {error}; check the cable: rpicam-hello --list-cameras") from None
        finally:
            if camera is not None:
                camera.close()


def open(text: str, options: SourceOptions, raw: RawSpec) -> base.Source:
    """Return the source for a camera. Raises InputError if neither program nor package is installed."""
    parsed = address.parse(text, options)
    if parsed.rest and not parsed.rest.isdigit():
        raise InputError(f"{parsed.shown}: use rpicam, or rpicam:1 for the second camera")
    if any(map(shutil.which, PROGRAMS)):
        return RpicamSource(parsed, options, raw)
    try:
        import picamera2  # noqa: F401
    except ImportError:
        packages = "sudo apt install rpicam-apps ffmpeg, or python3-picamera2"
        raise InputError(f"{parsed.shown}: neither rpicam-vid nor picamera2 is installed; run: {packages}") from None
    return Picamera2Source(parsed, options, raw)
