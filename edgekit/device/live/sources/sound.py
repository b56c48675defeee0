"""Windows of sound from bytes, decoded, resampled and cut as `Model.stream` does it."""

from __future__ import annotations

import os
import threading
from abc import abstractmethod
from collections.abc import Iterator
from time import monotonic

import numpy as np

from edgekit.device.live.sources import base, pipes
from edgekit.runner.streaming import audio, stream
from edgekit.runner.streaming.source import MOST_BYTES, Source

POLL_S = 0.2


class SoundSource(base.Source):
    """A source of sound. A subclass says in `_bytes` where the bytes come from.

    `rate` is in windows a second, which makes the distance of windows longer than that of the bundle or `hop` if need
    be.
    """

    kind = base.AUDIO
    limits_rate = True
    format: str | None = None
    rate_hz: int | None = None
    channels: int | None = None

    @abstractmethod
    def _bytes(self) -> Iterator[bytes]:
        """Yield the bytes of one connection."""

    def _check_options(self) -> None:
        super()._check_options()
        stream.window_hop(self.raw, self.options.hop, False)
        requested = audio.parse_stream_format(self.format, self.rate_hz, self.channels)
        audio.AudioDecoder(self.raw, requested, lambda note: None)

    def _connect(self) -> Iterator[np.ndarray]:
        hop = stream.window_hop(self.raw, self.options.hop, False)
        if self.options.rate:
            hop = max(hop, round((self.raw.sample_rate_hz or 1) / self.options.rate))
        source = Source(self._bytes())
        for window in stream.cut_windows(
            self.raw, source, hop, self.format, self.rate_hz, self.channels, lambda note: None
        ):
            yield window.raw


def read(descriptor: int, closed: threading.Event, stall_s: float | None = None) -> Iterator[bytes]:
    """Yield what arrives at a file descriptor, until its end, until `closed` is set or until nothing comes so long."""
    arrives = pipes.poller(descriptor)
    arrived_s = monotonic()
    while not closed.is_set():
        if not arrives(POLL_S):
            if stall_s and monotonic() > arrived_s + stall_s:
                return
            continue
        arrived_s = monotonic()
        data = os.read(descriptor, MOST_BYTES)
        if not data:
            return
        yield data
