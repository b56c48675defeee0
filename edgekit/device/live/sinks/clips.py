"""Pictures of each source from some seconds before an event until as long after it, in bounded memory."""

from __future__ import annotations

import collections
import threading
import time
from collections.abc import Callable

from edgekit.device.live.sinks import avi
from edgekit.device.live.types import Event

RATE = 10.0
"""Pictures per second of a clip, at most."""
MOST_S = 30.0
MOST_BYTES = 32 << 20
"""Limit of the pictures that a source keeps in memory, and of those of a clip; the oldest are dropped then."""
MOST_PENDING = 16
"""How many clips may be waiting for their last pictures."""
LATE_S = 2.0
"""How much later than its picture an event may come."""


class Pictures:
    """The JPEG pictures of the last seconds, by their time."""

    def __init__(self, seconds: float) -> None:
        self.kept: collections.deque[tuple[float, bytes]] = collections.deque()
        self._seconds, self._bytes = seconds, 0

    def add(self, time_s: float, picture: bytes) -> None:
        """Add a picture, and drop those that are too old or too many."""
        self.kept.append((time_s, picture))
        self._bytes += len(picture)
        while self._bytes > MOST_BYTES or self.kept[0][0] < time_s - self._seconds:
            self._bytes -= len(self.kept.popleft()[1])


class Clip:
    """The pictures around an event, from `seconds` before it until as long after it."""

    def __init__(self, event: Event, seconds: float) -> None:
        self.event, self._seconds, self._begun_s = event, seconds, time.monotonic()
        self._pictures = Pictures(2 * seconds)

    def add(self, time_s: float, picture: bytes) -> None:
        """Add a picture, unless its time is too early or too late."""
        if abs(time_s - self.event.time_s) <= self._seconds:
            self._pictures.add(time_s, picture)

    def is_complete(self, time_s: float) -> bool:
        """Whether pictures of this time come too late for it."""
        return time_s > self.event.time_s + self._seconds

    @property
    def is_overdue(self) -> bool:
        """Whether it would be complete by now if its source still sent pictures."""
        return time.monotonic() > self._begun_s + self._seconds + LATE_S

    def film(self) -> bytes | None:
        """Return the film (`avi`), or None without pictures. Pictures of another size than the last are left out."""
        if not self._pictures.kept:
            return None
        size = avi.picture_size(self._pictures.kept[-1][1])
        kept = [(time_s, each) for time_s, each in self._pictures.kept if avi.picture_size(each) == size]
        shown_s = (kept[-1][0] - kept[0][0]) / (len(kept) - 1) if len(kept) > 1 else 1.0
        return avi.make_film([each for _, each in kept], shown_s * len(kept))


class Clips:
    """The clips of all sources that wait for their last pictures.

    Parameters
    ----------
    seconds : float
        Length before the event, and after it.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._recent: dict[str, Pictures] = {}
        self._pending: collections.deque[Clip] = collections.deque()

    def begin(self, event: Event) -> list[Clip]:
        """Begin the clip of an event. Returns clips that make way because too many are waiting."""
        with self._lock:
            clip = Clip(event, self._seconds)
            for time_s, picture in self._recent[event.source].kept if event.source in self._recent else ():
                clip.add(time_s, picture)
            self._pending.append(clip)
            return [self._pending.popleft()] if len(self._pending) > MOST_PENDING else []

    def add(self, source: str, time_s: float, picture: bytes) -> list[Clip]:
        """Add a picture of a source. Returns the clips that are complete or overdue."""
        with self._lock:
            self._recent.setdefault(source, Pictures(self._seconds + LATE_S)).add(time_s, picture)
            for clip in self._pending:
                if clip.event.source == source:
                    clip.add(time_s, picture)
            return self._take(
                lambda clip: clip.is_overdue or (clip.event.source == source and clip.is_complete(time_s))
            )

    def overdue(self) -> list[Clip]:
        """Return the clips whose sources have stopped sending pictures, and forget them."""
        with self._lock:
            return self._take(lambda clip: clip.is_overdue)

    def end(self) -> list[Clip]:
        """Return the clips that are not complete, and forget them."""
        with self._lock:
            return self._take(lambda clip: True)

    def _take(self, is_ready: Callable[[Clip], bool]) -> list[Clip]:
        taken = [clip for clip in self._pending if is_ready(clip)]
        for clip in taken:
            self._pending.remove(clip)
        return taken
