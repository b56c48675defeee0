"""Sound on standard input: `pcm:s16le#rate=16000&channels=1`, or `pcm:wav` with a header.

The names of formats are those of ffmpeg and arecord. By default, rate and channels are the bundle's.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from typing import TYPE_CHECKING

from edgekit.device.live.sources import address, sound
from edgekit.runner.errors import InputError

if TYPE_CHECKING:
    from edgekit.device.live.sources.address import Address
    from edgekit.device.live.sources.options import SourceOptions
    from edgekit.runner.bundle.manifest import RawSpec

SCHEMES = ("pcm",)
DEFAULT = "s16le"


class PcmSource(sound.SoundSource):
    """Windows of the sound on standard input."""

    reconnects = False

    def __init__(self, address: Address, options: SourceOptions, raw: RawSpec) -> None:
        self.format = address.rest or DEFAULT
        self.rate_hz, self.channels = address.number("rate"), address.number("channels")
        super().__init__(address, options, raw)

    def waits(self) -> bool:
        return stat.S_ISREG(os.fstat(0).st_mode) or super().waits()

    def _bytes(self) -> Iterator[bytes]:
        if os.isatty(0):
            raise InputError(f"{self.address.shown}: nothing is piped in; e.g. arecord -f S16_LE -r 16000 | edgerun …")
        for data in sound.read(0, self._closed):
            self._ready.set()
            yield data


def open(text: str, options: SourceOptions, raw: RawSpec) -> PcmSource:
    """Return the source for a format. Raises InputError if the bundle takes no such sound."""
    return PcmSource(address.parse(text, options, ("rate", "channels")), options, raw)
