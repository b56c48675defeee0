"""Back-pressure for windows that arrive faster than they are answered: wait for the model, or drop the oldest.

A recorder does not wait. Samples that are not read from its pipe in time are lost in the middle of a window, and nobody
counts them. For live sources, a thread therefore reads everything as it arrives, and whole windows are dropped and
counted.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgekit.runner.streaming.window_cutter import Window

POLICIES = ("drop", "wait")


class WaitForModel:
    """Yields windows in order, and reads each only after the one before has been answered. Nothing is dropped."""

    dropped = 0

    def __init__(self, windows: Iterator[Window]) -> None:
        self._windows = windows

    def __iter__(self) -> Iterator[Window]:
        return self._windows

    def close(self) -> None:
        """Do nothing, because no thread is running."""


class DropOldest:
    """Yields windows that a thread collects. If `max_waiting` are waiting, a new one replaces the oldest."""

    def __init__(self, windows: Iterator[Window], max_waiting: int) -> None:
        self.dropped = 0
        self._windows, self._max_waiting = windows, max_waiting
        self._waiting: deque[Window] = deque()
        self._changed = threading.Condition()
        self._is_over = False
        self._problem: BaseException | None = None
        self._thread = threading.Thread(target=self._gather, name="edgekit stream", daemon=True)

    def __iter__(self) -> Iterator[Window]:
        """Yield each window that was not dropped, and raise the stream's error after all of them."""
        self._thread.start()
        while True:
            with self._changed:
                while not self._waiting and not self._is_over:
                    self._changed.wait()
                if not self._waiting:
                    break
                window = self._waiting.popleft()
            yield window
        if self._problem is not None:
            raise self._problem

    def close(self) -> None:
        """Stop collecting. A read that waits for data ends with the process."""
        with self._changed:
            self._is_over = True
            self._waiting.clear()

    def _gather(self) -> None:
        try:
            for window in self._windows:
                with self._changed:
                    if self._is_over:
                        return
                    if len(self._waiting) == self._max_waiting:
                        self._waiting.popleft()
                        self.dropped += 1
                    self._waiting.append(window)
                    self._changed.notify()
        except BaseException as error:  # raised where the answers are consumed
            self._problem = error
        finally:
            with self._changed:
                self._is_over = True
                self._changed.notify()
