"""Samples out of a longer file: windows of one length out of a recording, rows out of a table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Union

import numpy as np

from edgekit.runner.input_path import Step


class Span(NamedTuple):
    """Where in its recording a sample lies: the first moment and the one behind the last; in rows without a rate."""

    start: int
    end: int
    rate_hz: int | None = None

    def __str__(self) -> str:
        if self.rate_hz is None:
            return f"rows {self.start + 1}–{self.end}"
        return f"{self.start / self.rate_hz:.2f}–{self.end / self.rate_hz:.2f} s"

    def to_dict(self) -> dict[str, Any]:
        """For JSON; rows are counted from 1, behind the header."""
        if self.rate_hz is None:
            return {"first_row": self.start + 1, "last_row": self.end}
        return {"start_s": self.start / self.rate_hz, "end_s": self.end / self.rate_hz}

    def facts(self) -> dict[str, Any]:
        """What an answer in JSON says of it."""
        return {"window": self.to_dict()}


class Truncation(NamedTuple):
    """How much of a text a sample is: so many of its tokens, for the bundle takes no more."""

    kept: int
    tokens: int

    def __str__(self) -> str:
        return f"the first {self.kept} of {self.tokens} tokens"

    def facts(self) -> dict[str, Any]:
        """What an answer in JSON says of it."""
        return {"cut": {"kept": self.kept, "tokens": self.tokens}}


class Row(NamedTuple):
    """Which row of a table a sample is, counted from 1 behind the header; of a text too long, how much of it."""

    number: int
    cut_windows: Truncation | None = None

    def __str__(self) -> str:
        return f"row {self.number}{f', {self.cut}' if self.cut else ''}"

    def facts(self) -> dict[str, Any]:
        """What an answer in JSON says of it."""
        return {"row": self.number, **(self.cut.facts() if self.cut else {})}


Location = Union[Span, Row, Truncation]


class Sample(NamedTuple):
    """One raw sample; `span` where it is a window of a recording, a row of a table, or the beginning of a text.

    `size` is the (width, height) of the picture that it was.
    """

    raw: np.ndarray
    span: Location | None = None
    size: tuple[int, int] | None = None


def window_count(moments: int, step: Step) -> int:
    """How many windows a recording of so many moments has: 0 where it is too short and nothing fills it up."""
    length, stride = step["length"], step["stride"]
    if step["fill"] == "silence":
        return 0 if moments == 0 else 1 + max(0, -(-(moments - length) // stride))
    return 0 if moments < length else 1 + (moments - length) // stride


def cut_windows(x: np.ndarray, step: Step) -> Iterator[np.ndarray]:
    """The windows (length, …) of a recording (moments, …), in order; with silence behind the last, if that is asked."""
    length, stride = step["length"], step["stride"]
    for number in range(window_count(len(x), step)):
        window = x[number * stride : number * stride + length]
        if len(window) < length:
            window = np.concatenate([window, np.zeros((length - len(window), *x.shape[1:]), x.dtype)])
        yield window


def stack_windows(x: np.ndarray, step: Step) -> np.ndarray:
    """The whole windows (n, length, …) of a recording as a view of it: what `cut` gives without a fill."""
    view = np.lib.stride_tricks.sliding_window_view(x, step["length"], axis=0)[:: step["stride"]]
    return np.moveaxis(view, -1, 1)


def window_samples(x: np.ndarray, step: Step, rate_hz: int | None = None) -> Iterator[Sample]:
    """The same, each with its place; the silence is no part of it."""
    for number, window in enumerate(cut_windows(x, step)):
        start = number * step["stride"]
        yield Sample(np.ascontiguousarray(window), Span(start, min(start + step["length"], len(x)), rate_hz))


def row_samples(x: np.ndarray) -> Iterator[Sample]:
    """The rows (features,) of a table (rows, features), in order: the step `rows` of an input path."""
    for number, row in enumerate(x, 1):
        yield Sample(np.ascontiguousarray(row), Row(number))
