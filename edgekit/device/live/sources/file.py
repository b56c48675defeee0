"""A film, a picture or a folder of pictures, played at its own speed as if it came from a camera.

A film is decoded by ffmpeg at its own rate. Pictures are decoded as `edgerun predict` decodes them, in the order of
their names, PICTURES_RATE a second or as many as `rate` says.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from edgekit.device.live.sources import address, base, ffmpeg
from edgekit.runner import inputs
from edgekit.runner.errors import InputError
from edgekit.runner.inputs import picture

if TYPE_CHECKING:
    from edgekit.device.live.sources.options import SourceOptions
    from edgekit.runner.bundle.manifest import RawSpec

SCHEMES = ("file",)
PICTURES_RATE = 1.0
PICTURES = (".jpg", ".jpeg", ".png", ".webp")
DECODE_STEP = {"step": "decode_picture", "orientation": "apply"}


class FilmSource(ffmpeg.FfmpegSource):
    """Frames of a film."""

    reconnects = False

    def _input(self) -> ffmpeg.Input:
        options = ["-re"] if self.options.realtime else []
        options += ["-stream_loop", "-1"] if self.options.loop else []
        return ffmpeg.Input((*options, "-i", f"file:{self.address.rest}"))


class PicturesSource(base.Source):
    """Pictures from files."""

    reconnects = False
    limits_rate = True

    def _connect(self) -> Iterator[np.ndarray]:
        path = self.address.rest
        steps = [step for step in self.raw.steps if step["step"] == "decode_picture"] or [DECODE_STEP]
        due_s = time.monotonic()
        while True:
            for name in inputs.files_in_folder(path, PICTURES) if os.path.isdir(path) else [path]:
                frame = picture.pixels(name, steps)
                if self.options.realtime and self._closed.wait(max(0.0, due_s - time.monotonic())):
                    return
                due_s = max(due_s, time.monotonic() - 1) + 1 / (self.options.rate or PICTURES_RATE)
                yield frame
            if not self.options.loop:
                return


def open(text: str, options: SourceOptions, raw: RawSpec) -> base.Source:
    """Return the source for a path. Raises InputError if it is not there or the bundle takes no pictures."""
    parsed = address.parse(text, options)
    path = parsed.rest
    if path.startswith("/dev/video"):
        raise InputError(f"{path}: a camera, not a film; use v4l2:{path}")
    if not os.path.exists(path):
        raise InputError(f"{path}: there is no such file or folder; check the path")
    if not os.access(path, os.R_OK):
        raise InputError(f"{path}: no permission to read it; run: chmod a+r {path}")
    if not os.path.isdir(path):
        return (PicturesSource if path.lower().endswith(PICTURES) else FilmSource)(parsed, options, raw)
    if not inputs.files_in_folder(path, PICTURES):
        raise InputError(
            f"{path}: a folder that holds no {' or '.join(PICTURES)} file; give one with pictures, or a film"
        )
    return PicturesSource(parsed, options, raw)
