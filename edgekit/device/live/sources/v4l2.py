"""A camera of Video4Linux, such as a USB camera: `v4l2:/dev/video0`.

`size` and `rate` are asked of the camera, which gives what comes nearest. `#format=mjpeg` asks for a format, because
many USB cameras reach their full rate only with Motion JPEG.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from edgekit.device.live.sources import address, ffmpeg
from edgekit.runner.errors import InputError

if TYPE_CHECKING:
    from edgekit.device.live.sources.options import SourceOptions
    from edgekit.runner.bundle.manifest import RawSpec

SCHEMES = ("v4l2",)
DEFAULT = "/dev/video0"


class V4l2Source(ffmpeg.FfmpegSource):
    """Frames of a camera of Video4Linux."""

    has_size = True

    def _input(self) -> ffmpeg.Input:
        path, shown, size = self.address.rest or DEFAULT, self.address.shown, self.options.size
        try:
            is_device = stat.S_ISCHR(os.stat(path).st_mode)
        except OSError as error:
            raise InputError(f"{shown}: {error.strerror}; plug the camera in; those here: ls /dev/video*") from None
        if not is_device:
            raise InputError(f"{shown}: not a camera but a file; to play a film, give its path alone")
        if not os.access(path, os.R_OK | os.W_OK):
            raise InputError(f"{shown}: no permission; run: sudo usermod -aG video $USER, and log in again")
        asked = ["-input_format", self.address.parameters["format"]] if "format" in self.address.parameters else []
        asked += ["-video_size", f"{size[0]}x{size[1]}"] if size else []
        asked += ["-framerate", f"{self.options.rate:g}"] if self.options.rate else []
        return ffmpeg.Input(("-f", "v4l2", *asked, "-flags", "low_delay", "-i", path))


def open(text: str, options: SourceOptions, raw: RawSpec) -> V4l2Source:
    """Return the source for a device. Raises InputError if the bundle takes no pictures."""
    return V4l2Source(address.parse(text, options, ("format",)), options, raw)
