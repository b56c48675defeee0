"""Samples of sensors from rows of numbers, and rows from lines and messages of sensors."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from time import perf_counter_ns
from typing import TYPE_CHECKING

import numpy as np

from edgekit.device.live.sources import base
from edgekit.runner import input_path
from edgekit.runner.errors import InputError
from edgekit.runner.inputs import table
from edgekit.runner.streaming import stream
from edgekit.runner.streaming.window_cutter import WindowCutter

if TYPE_CHECKING:
    from edgekit.device.live.sources.address import Address
    from edgekit.device.live.sources.options import SourceOptions
    from edgekit.runner.bundle.manifest import RawSpec

SEPARATORS = re.compile(r"[,;\t ]+")
SHOWN_CHARACTERS = 40


class RowSamples:
    """Cuts samples from rows (rows, columns): windows, or each row alone if the bundle takes vectors."""

    def __init__(self, raw: RawSpec, hop: int | None) -> None:
        self._cutter: WindowCutter | None = None
        if raw.kind == "window":
            step = input_path.find_step(raw.steps, "windows")
            distance = stream.window_hop(raw, hop, False)
            self._cutter = WindowCutter(raw.shape, distance, step["fill"] if step else "none", None)

    def push(self, rows: np.ndarray) -> Iterator[np.ndarray]:
        """Yield the samples that these rows complete."""
        if self._cutter is None:
            yield from rows
            return
        for window in self._cutter.push(rows, perf_counter_ns()):
            yield window.raw


class RowParser:
    """Reads rows as sensors write them: numbers in the bundle's order, by a header with names, or JSON.

    A line of numbers may be separated by commas, semicolons, tabs or spaces; JSON is an array of numbers, or an object
    with the bundle's columns.
    """

    def __init__(self, raw: RawSpec) -> None:
        self._columns, self._count = raw.columns, raw.shape[-1]
        self._order: list[int] | None = None
        self._cells = self._count

    def __call__(self, text: str) -> np.ndarray | None:
        """Return a row (1, columns) float32, or None for an empty line and for a header.

        Raises InputError for anything else.
        """
        text = text.strip()
        if not text:
            return None
        if text[0] in "[{":
            return self._json(text)
        cells = [cell.strip('"') for cell in SEPARATORS.split(text.strip(",; \t"))]
        if self._columns and set(self._columns) <= set(cells):
            self._order, self._cells = [cells.index(column) for column in self._columns], len(cells)
            return None
        if len(cells) != self._cells or not all(map(table.is_number, cells)):
            raise self._error(text)
        return self._row([cells[position] for position in self._order] if self._order else cells)

    def _json(self, text: str) -> np.ndarray:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            raise self._error(text) from None
        if isinstance(value, dict):
            value = [value.get(column) for column in self._columns or ()]
        if len(value) != self._count or not all(type(each) in (int, float) for each in value):
            raise self._error(text)
        return self._row(value)

    def _row(self, values: list[str] | list[float]) -> np.ndarray:
        return np.array([[float(value) for value in values]], np.float64).astype(np.float32)

    def _error(self, text: str) -> InputError:
        names = f": {', '.join(self._columns[:6])}{' …' if len(self._columns) > 6 else ''}" if self._columns else ""
        return InputError(f"got {text[:SHOWN_CHARACTERS]!r}; send {self._count} numbers a line{names}")


class RowSource(base.Source):
    """A source of rows."""

    kind = base.ROWS

    def __init__(self, address: Address, options: SourceOptions, raw: RawSpec) -> None:
        super().__init__(address, options, raw)
        self._ignored = 0
        if self.kind == base.ROWS and raw.dtype != "float32":
            raise InputError(f"{address.shown}: the bundle takes rows of {raw.dtype}; only float32 ones can be live")
        if raw.kind == "window":
            stream.window_hop(raw, options.hop, False)

    def _ignore(self, error: InputError) -> None:
        """Note in the status that a line or a message was left out."""
        self._ignored += 1
        self._detail = self.address.redact(f"left out: {self._ignored}; the last: {error}")
