"""An RTSP stream, as network cameras send it: `rtsp://user:${PASSWORD}@host:554/path`.

RTP comes over TCP if the camera can do that, else over UDP.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.device.live.sources import address, ffmpeg

if TYPE_CHECKING:
    from edgekit.device.live.sources.options import SourceOptions
    from edgekit.runner.bundle.manifest import RawSpec

SCHEMES = ("rtsp", "rtsps")
OPTIONS = {"rtsp_flags": "prefer_tcp", "allowed_media_types": "video"}


class RtspSource(ffmpeg.FfmpegSource):
    """Frames of an RTSP stream."""

    def _input(self) -> ffmpeg.Input:
        return ffmpeg.network_input(self, ffmpeg.find(self.address.shown)[1], OPTIONS)


def open(text: str, options: SourceOptions, raw: RawSpec) -> RtspSource:
    """Return the source for an address. Raises InputError if it is malformed or the bundle takes no pictures."""
    parsed = address.parse(text, options)
    parsed.check_host()
    return RtspSource(parsed, options, raw)
