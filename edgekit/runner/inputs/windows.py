"""Samples from a longer file: windows of fixed length from a recording, or rows from a table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Union

import numpy as np

from edgekit.runner.input_path import Step


class Span(NamedTuple):
    """The part of a recording that a sample covers: start and exclusive end, in samples, or rows if it has no rate."""

    start: int
    end: int
    rate_hz: int | None = None

    def __str__(self) -> str:
        if self.rate_hz is None:
            return f"rows {self.start + 1}–{self.end}"
        return f"{self.start / self.rate_hz:.2f}–{self.end / self.rate_hz:.2f} s"

    def to_dict(self) -> dict[str, Any]:
        """Return the span for JSON. Rows are counted from 1, after the header."""
        if self.rate_hz is None:
            return {"first_row": self.start + 1, "last_row": self.end}
        return {"start_s": self.start / self.rate_hz, "end_s": self.end / self.rate_hz}

    def facts(self) -> dict[str, Any]:
        """Return the location as fields of an answer in JSON."""
        return {"window": self.to_dict()}


class Truncation(NamedTuple):
    """A text that was cut: how many of its tokens were kept, because the bundle takes no more, and how many it has."""

    kept: int
    tokens: int

    def __str__(self) -> str:
        return f"the first {self.kept} of {self.tokens} tokens"

    def facts(self) -> dict[str, Any]:
        """Return the location as fields of an answer in JSON."""
        return {"cut": {"kept": self.kept, "tokens": self.tokens}}


class Row(NamedTuple):
    """A row of a table, counted from 1 after the header, and how much of a long text was kept."""

    number: int
    cut: Truncation | None = None

    def __str__(self) -> str:
        return f"row {self.number}{f', {self.cut}' if self.cut else ''}"

    def facts(self) -> dict[str, Any]:
        """Return the location as fields of an answer in JSON."""
        return {"row": self.number, **(self.cut.facts() if self.cut else {})}


Location = Union[Span, Row, Truncation]


class Sample(NamedTuple):
    """One raw sample.

    `span` is set if it is a window of a recording, a row of a table, or the beginning of a text. `size` is the (width,
    height) of the original picture.
    """

    raw: np.ndarray
    span: Location | None = None
    size: tuple[int, int] | None = None


def window_count(moments: int, step: Step) -> int:
    """Return how many windows a recording has: 0 if it is too short and nothing pads it."""
    length, stride = step["length"], step["stride"]
    if step["fill"] == "silence":
        return 0 if moments == 0 else 1 + max(0, -(-(moments - length) // stride))
    return 0 if moments < length else 1 + (moments - length) // stride


def cut_windows(x: np.ndarray, step: Step) -> Iterator[np.ndarray]:
    """Yield the windows (length, …) of a recording (moments, …) in order.

    The last one is padded with silence if that is declared.
    """
    length, stride = step["length"], step["stride"]
    for number in range(window_count(len(x), step)):
        window = x[number * stride : number * stride + length]
        if len(window) < length:
            window = np.concatenate([window, np.zeros((length - len(window), *x.shape[1:]), x.dtype)])
        yield window


def stack_windows(x: np.ndarray, step: Step) -> np.ndarray:
    """Return the complete windows (n, length, …) of a recording as a view: those of `cut_windows` without padding."""
    view = np.lib.stride_tricks.sliding_window_view(x, step["length"], axis=0)[:: step["stride"]]
    return np.moveaxis(view, -1, 1)


def window_samples(x: np.ndarray, step: Step, rate_hz: int | None = None) -> Iterator[Sample]:
    """Yield the windows with their locations, which exclude the padding."""
    for number, window in enumerate(cut_windows(x, step)):
        start = number * step["stride"]
        yield Sample(np.ascontiguousarray(window), Span(start, min(start + step["length"], len(x)), rate_hz))


def row_samples(x: np.ndarray) -> Iterator[Sample]:
    """Yield the rows (features,) of a table (rows, features) in order: the step `rows` of an input path."""
    for number, row in enumerate(x, 1):
        yield Sample(np.ascontiguousarray(row), Row(number))
