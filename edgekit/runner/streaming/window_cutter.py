"""Windows out of moments that come in parts: those that `inputs/windows.py` cuts out of a whole recording."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from edgekit.runner.inputs import windows
from edgekit.runner.inputs.windows import Span


class Window(NamedTuple):
    """A raw sample and its place; `arrived_ns` is when the last of its moments came."""

    raw: np.ndarray
    span: Span
    arrived_ns: int


class WindowCutter:
    """A buffer of the moments that windows still need; what lies behind is forgotten."""

    def __init__(self, shape: tuple[int, ...], hop: int, fill: str, rate_hz: int | None) -> None:
        self.moments = 0
        self.number = 0  # of the next window
        self._length, self._hop, self._rate_hz = shape[0], hop, rate_hz
        self._step = {"length": shape[0], "stride": hop, "fill": fill}
        self._held = np.zeros((2 * shape[0], *shape[1:]), np.float32)
        self._first = 0  # the moment at the buffer's beginning

    def push(self, x: np.ndarray, arrived_ns: int) -> Iterator[Window]:
        """The windows that these moments (moments, …) complete."""
        while len(x):
            self._forget()
            part = x[: self._first + len(self._held) - self.moments]
            place = self.moments - self._first
            self._held[place : place + len(part)] = part
            self.moments += len(part)
            x = x[len(part) :]
            while self._start + self._length <= self.moments:
                yield self._window(arrived_ns)

    def finish(self, arrived_ns: int) -> Iterator[Window]:
        """The window that silence fills up behind the last moment, where that is declared."""
        while self.number < windows.window_count(self.moments, self._step):
            yield self._window(arrived_ns)

    @property
    def left(self) -> int:
        """Moments behind the last window."""
        covered = self._start - self._hop + self._length if self.number else 0
        return max(0, self.moments - covered)

    @property
    def _start(self) -> int:
        return self.number * self._hop

    def _window(self, arrived_ns: int) -> Window:
        start = self._start
        end = min(start + self._length, self.moments)
        raw = np.zeros((self._length, *self._held.shape[1:]), np.float32)
        if start < end:
            raw[: end - start] = self._held[start - self._first : end - self._first]
        self.number += 1
        return Window(raw, Span(start, end, self._rate_hz), arrived_ns)

    def _forget(self) -> None:
        """Once the buffer is full, move what the next window needs to its beginning: less than a window."""
        if self.moments < self._first + len(self._held):
            return
        first = min(self._start, self.moments)
        kept = self._held[first - self._first : self.moments - self._first]
        self._held[: len(kept)] = kept.copy()
        self._first = first
