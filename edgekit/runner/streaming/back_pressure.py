"""Back-pressure where windows come faster than they are answered: wait for the model, or drop the oldest that waits.

A recorder does not wait: what nobody takes out of its pipe it loses itself, in the middle of windows and uncounted. So
there a thread takes everything as it comes, and whole windows are dropped and counted.
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
    """Windows in the order they came, each read only once the one before was answered: nothing is ever dropped."""

    dropped = 0

    def __init__(self, windows: Iterator[Window]) -> None:
        self._windows = windows

    def __iter__(self) -> Iterator[Window]:
        return self._windows

    def close(self) -> None:
        """Nothing runs."""


class DropOldest:
    """Windows that a thread gathers: `most` of them wait, and the oldest makes room for a new one."""

    def __init__(self, windows: Iterator[Window], most: int) -> None:
        self.dropped = 0
        self._windows, self._most = windows, most
        self._waiting: deque[Window] = deque()
        self._changed = threading.Condition()
        self._is_over = False
        self._problem: BaseException | None = None
        self._thread = threading.Thread(target=self._gather, name="edgekit stream", daemon=True)

    def __iter__(self) -> Iterator[Window]:
        """Each window that was not dropped; an error of the stream comes behind them all."""
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
        """Gather no more; a read that waits for data ends with the process."""
        with self._changed:
            self._is_over = True
            self._waiting.clear()

    def _gather(self) -> None:
        try:
            for window in self._windows:
                with self._changed:
                    if self._is_over:
                        return
                    if len(self._waiting) == self._most:
                        self._waiting.popleft()
                        self.dropped += 1
                    self._waiting.append(window)
                    self._changed.notify()
        except BaseException as error:  # told where the answers are asked for
            self._problem = error
        finally:
            with self._changed:
                self._is_over = True
                self._changed.notify()
