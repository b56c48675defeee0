"""A bounded queue with a thread, between the loop and whatever may wait for others."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any


class Outbox:
    """Hands items to a function in a thread of its own. If `limit` are waiting, a new one replaces the oldest.

    What the function raises is kept in `problem`, and ends the thread.
    """

    def __init__(self, name: str, handle: Callable[[Any], object], limit: int) -> None:
        self.dropped = 0
        self.problem: BaseException | None = None
        self._handle, self._items = handle, deque[Any](maxlen=limit)
        self._more, self._is_over = threading.Condition(), False
        self._thread = threading.Thread(target=self._run, name=f"edgerun {name}", daemon=True)
        self._thread.start()

    def put(self, item: Any) -> None:
        """Add an item. Never waits for the function."""
        with self._more:
            self.dropped += len(self._items) == self._items.maxlen
            self._items.append(item)
            self._more.notify()

    def close(self, timeout_s: float) -> None:
        """Hand over what is waiting, for this long at most."""
        deadline = time.monotonic() + timeout_s
        with self._more:
            self._is_over = True
            self._more.notify()
        self._thread.join(max(0.0, deadline - time.monotonic()))

    def _run(self) -> None:
        while True:
            with self._more:
                while not self._items:
                    if self._is_over:
                        return
                    self._more.wait()
                item = self._items.popleft()
            try:
                self._handle(item)
            except BaseException as error:  # the owner asks for it
                self.problem = error
                return
