"""Motion JPEG over HTTP, as many cameras and ESP32 boards send it: `http://user:${PASSWORD}@host/stream`.

Any other film that ffmpeg reads from a web server works too, and starts anew at its end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.device.live.sources import address, ffmpeg

if TYPE_CHECKING:
    from edgekit.device.live.sources.options import SourceOptions
    from edgekit.runner.bundle.manifest import RawSpec

SCHEMES = ("http", "https")


class HttpSource(ffmpeg.FfmpegSource):
    """Frames of an HTTP stream."""

    def _input(self) -> ffmpeg.Input:
        return ffmpeg.network_input(self, ffmpeg.find(self.address.shown)[1], {})


def open(text: str, options: SourceOptions, raw: RawSpec) -> HttpSource:
    """Return the source for an address. Raises InputError if it is malformed or the bundle takes no pictures."""
    parsed = address.parse(text, options)
    parsed.check_host()
    return HttpSource(parsed, options, raw)
