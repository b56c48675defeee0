"""The newest frame of each source, and whose turn it is.

A single source is asked directly. Of several, each has a thread that waits for its frames. A frame that nobody has
taken is replaced by the next one and counted as dropped, so what is answered is never older than one call of the model.
The source that was served longest ago is served first, so that a fast camera does not starve a slow one. A source whose
frame is being answered has no turn, so that its answers keep their order although frames of others are answered
meanwhile.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgekit.device.live.types import Frame

WAIT_S = 0.5
"""How long a thread waits for a frame before it looks whether it should end."""


class Feed:
    """A source and its frame that is waiting.

    Parameters
    ----------
    source : Source
        See `edgekit.device.live.sources`.
    waits : bool
        True makes the source wait until a frame is taken, so that none is dropped, as for a file that is not played in
        real time.
    """

    def __init__(self, source: Any, waits: bool = False) -> None:
        self.source, self.waits = source, waits
        self.name: str = source.name
        self.dropped = 0
        self.served_s = float("-inf")
        self.frame: Frame | None = None
        self.has_ended = False
        self.is_busy = False
        """Whether a frame is being answered: from `Feeds.take` to `Feeds.done`."""


class Feeds:
    """All sources. `take` returns the next frame to answer."""

    def __init__(self, feeds: Sequence[Feed]) -> None:
        self.feeds = tuple(feeds)
        self.problem: BaseException | None = None
        """What a source raised, if one did."""
        self._changed = threading.Condition()
        self._is_over = False
        gathered = self.feeds if len(self.feeds) > 1 else ()
        self._threads = [
            threading.Thread(target=self._gather, args=(each,), name=f"edgerun {each.name}", daemon=True)
            for each in gathered
        ]

    def start(self) -> None:
        """Start every source and its thread."""
        for feed in self.feeds:
            feed.source.start()
        for thread in self._threads:
            thread.start()

    def take(self, timeout_s: float) -> tuple[Feed, Frame] | None:
        """Return the waiting frame of the source that was served longest ago, or None if no frame came in time.

        Call `done` when it is answered. Several threads may take frames.
        """
        if not self._threads:
            return self._ask(self.feeds[0], timeout_s)
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while True:
                waiting = [feed for feed in self.feeds if feed.frame is not None and not feed.is_busy]
                if waiting:
                    break
                remaining_s = deadline - time.monotonic()
                if self._is_over or remaining_s <= 0 or self._is_done():
                    return None
                self._changed.wait(remaining_s)
            feed = min(waiting, key=lambda each: each.served_s)
            frame, feed.frame, feed.is_busy = feed.frame, None, True
            feed.served_s = time.monotonic()
            if feed.waits:
                self._changed.notify_all()
        assert frame is not None
        return feed, frame

    def done(self, feed: Feed) -> None:
        """Give a source its next turn."""
        with self._changed:
            feed.is_busy = False
            self._changed.notify_all()

    @property
    def have_ended(self) -> bool:
        """Whether every source has ended, and every frame was answered."""
        with self._changed:
            return self._is_done()

    def _is_done(self) -> bool:
        return all(feed.has_ended and feed.frame is None and not feed.is_busy for feed in self.feeds)

    def stop(self) -> None:
        """Let `take` return at once, and the threads end."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def close(self, timeout_s: float) -> None:
        """Stop, and close every source. Each gets its share of the time, side by side."""
        self.stop()
        closing = [threading.Thread(target=feed.source.close, daemon=True) for feed in self.feeds]
        deadline = time.monotonic() + timeout_s
        for thread in closing:
            thread.start()
        for thread in (*closing, *self._threads):
            if thread.ident is not None:
                thread.join(max(0.0, deadline - time.monotonic()))

    def _ask(self, feed: Feed, timeout_s: float) -> tuple[Feed, Frame] | None:
        frame = feed.source.newest(timeout_s)
        if frame is None:
            feed.has_ended = feed.source.status().state == "ended"
            return None
        return feed, frame

    def _gather(self, feed: Feed) -> None:
        try:
            while not self._is_over:
                frame = feed.source.newest(WAIT_S)
                if frame is not None:
                    self._put(feed, frame)
                elif feed.source.status().state == "ended":
                    break
        except BaseException as error:  # raised where the frames are taken
            self.problem = error
        finally:
            with self._changed:
                feed.has_ended = True
                self._changed.notify_all()

    def _put(self, feed: Feed, frame: Frame) -> None:
        with self._changed:
            while feed.waits and feed.frame is not None and not self._is_over:
                self._changed.wait()
            feed.dropped += feed.frame is not None
            feed.frame = frame
            self._changed.notify_all()
