"""Cut windows from moments that arrive in parts: the same windows that `inputs/windows.py` cuts from a recording."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from edgekit.runner.inputs import windows
from edgekit.runner.inputs.windows import Span


class Window(NamedTuple):
    """A raw sample and its location. `arrived_ns` is when the last of its moments arrived."""

    raw: np.ndarray
    span: Span
    arrived_ns: int


class WindowCutter:
    """A buffer of the moments that later windows still need."""

    def __init__(self, shape: tuple[int, ...], hop: int, fill: str, rate_hz: int | None) -> None:
        self.moments = 0
        self.number = 0  # number of the next window
        self._length, self._hop, self._rate_hz = shape[0], hop, rate_hz
        self._step = {"length": shape[0], "stride": hop, "fill": fill}
        self._buffer = np.zeros((2 * shape[0], *shape[1:]), np.float32)
        self._first = 0  # the number of the first moment in the buffer

    def push(self, x: np.ndarray, arrived_ns: int) -> Iterator[Window]:
        """Yield the windows that these moments (moments, …) complete."""
        while len(x):
            self._forget()
            part = x[: self._first + len(self._buffer) - self.moments]
            position = self.moments - self._first
            self._buffer[position : position + len(part)] = part
            self.moments += len(part)
            x = x[len(part) :]
            while self._start + self._length <= self.moments:
                yield self._window(arrived_ns)

    def finish(self, arrived_ns: int) -> Iterator[Window]:
        """Yield the window at the end that is padded with silence, if that is declared."""
        while self.number < windows.window_count(self.moments, self._step):
            yield self._window(arrived_ns)

    @property
    def remaining(self) -> int:
        """The number of moments after the last window."""
        covered = self._start - self._hop + self._length if self.number else 0
        return max(0, self.moments - covered)

    @property
    def _start(self) -> int:
        return self.number * self._hop

    def _window(self, arrived_ns: int) -> Window:
        start = self._start
        end = min(start + self._length, self.moments)
        raw = np.zeros((self._length, *self._buffer.shape[1:]), np.float32)
        if start < end:
            raw[: end - start] = self._buffer[start - self._first : end - self._first]
        self.number += 1
        return Window(raw, Span(start, end, self._rate_hz), arrived_ns)

    def _forget(self) -> None:
        """Once the buffer is full, move the moments that the next window needs to its beginning."""
        if self.moments < self._first + len(self._buffer):
            return
        first = min(self._start, self.moments)
        needed = self._buffer[first - self._first : self.moments - self._first]
        self._buffer[: len(needed)] = needed.copy()
        self._first = first
