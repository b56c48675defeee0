"""Where frames come from: cameras, streams, films, microphones and sensors.

`open_source` picks the kind by the scheme of the address: there is one module for each, with its `SCHEMES` and a
function `open(text, options, raw)`. `base` has the contract.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING

from edgekit.device.live.sources import address
from edgekit.device.live.sources.base import Source, SourceStatus
from edgekit.device.live.sources.options import SourceOptions
from edgekit.runner.errors import InputError

if TYPE_CHECKING:
    from edgekit.runner.bundle.manifest import RawSpec

__all__ = ["Source", "SourceOptions", "SourceStatus", "open_source"]

MODULES = {
    "file": "file", "v4l2": "v4l2", "rpicam": "rpicam", "rtsp": "rtsp", "rtsps": "rtsp", "http": "http",
    "https": "http", "alsa": "alsa", "pcm": "pcm", "serial": "serial", "csv": "csv", "mqtt": "mqtt", "mqtts": "mqtt",
}  # fmt: skip
"""The module for each scheme."""
EXAMPLES = (
    "a path, v4l2:/dev/video0, rpicam, rtsp://, http://, alsa, pcm:s16le, serial:/dev/ttyACM0, csv:FILE or mqtt://"
)


def open_source(text: str, options: SourceOptions, raw: RawSpec) -> Source:
    """Return the source for an address, which is not connected yet. Raises InputError if the address is not valid."""
    scheme = address.scheme_of(text)
    if text.isdecimal() and not os.path.exists(text):
        raise InputError(f"from: got {text!r}; for a USB camera use v4l2:/dev/video{int(text)}")
    if not text or scheme not in MODULES:
        shown = address.hide(text)
        raise InputError(f"from: got {shown!r}: neither a kind of source nor an existing path; use {EXAMPLES}")
    source: Source = importlib.import_module(f"{__name__}.{MODULES[scheme]}").open(text, options, raw)
    return source
