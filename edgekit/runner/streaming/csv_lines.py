"""Lines of CSV out of a pipe, read as `inputs/table.py` reads a file: the first line has the columns' names."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence

import numpy as np

from edgekit.runner.errors import InputError
from edgekit.runner.inputs import table
from edgekit.runner.inputs.table import Table

NAME = "the stream"
LONGEST_LINE_BYTES = 1 << 20


class Lines:
    """Bytes into rows (rows, columns) float32, in the order of `columns`."""

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = columns
        self._waiting = b""
        self._header: tuple[str, ...] = ()
        self._delimiter = ""
        self._lines = self._empty = 0  # read so far; the first empty one

    def push(self, data: bytes) -> Iterator[np.ndarray]:
        """The rows of the lines that are whole by now; InputError behind the last good one."""
        self._waiting += data
        end = self._waiting.rfind(b"\n") + 1 if b"\n" in data else 0
        if end == 0 or self._waiting.count(b'"', 0, end) % 2:  # a line end between quotes is none
            if len(self._waiting) > LONGEST_LINE_BYTES:
                raise InputError(f"{NAME}, line {self._lines + 1}: over {LONGEST_LINE_BYTES:,} bytes without an end")
            return
        lines, self._waiting = self._waiting[:end], self._waiting[end:]
        yield from self._read(lines)

    def finish(self) -> Iterator[np.ndarray]:
        """The last line, which need not end."""
        if self._waiting:
            yield from self._read(self._waiting)
        if not self._header:
            raise InputError(f"{NAME}: no line came; see what the program before the pipe says")

    def _read(self, data: bytes) -> Iterator[np.ndarray]:
        try:
            text = data.decode("utf-8" if self._lines else "utf-8-sig")
        except UnicodeDecodeError as error:
            good = data[: data.rfind(b"\n", 0, error.start) + 1]
            if good:
                yield from self._read(good)
            raise InputError(f"{NAME}, line {self._lines + 1}: no text in UTF-8; send CSV in UTF-8") from None
        rows = Table(NAME, self._header, [], [])
        problem: InputError | None = None
        try:
            self._delimiter = self._delimiter or table.delimiter_of(text)
            reader = csv.reader(io.StringIO(text, newline=""), delimiter=self._delimiter)
            if not self._header:
                self._header = table.header_of(NAME, reader)
                rows = Table(NAME, self._header, [], [])
                table.floats(rows, self._columns)  # whether the columns are there
            for row in reader:
                place = self._lines + reader.line_num
                if not row:
                    self._empty = self._empty or place
                    continue
                table.check_row(NAME, row, place, self._empty, self._header)
                rows.rows.append(table.with_points(row, self._delimiter))
                rows.lines.append(place)
            self._lines += reader.line_num
        except csv.Error as error:
            problem = InputError(f"{NAME}: cannot be read as CSV ({error}); send lines without breaks in cells")
        except InputError as error:
            problem = error
        if rows.rows:
            yield from self._floats(rows)
        if problem is not None:
            raise problem

    def _floats(self, rows: Table) -> Iterator[np.ndarray]:
        """The rows; where one has a bad cell, those before it and then its InputError."""
        try:
            found = table.floats(rows, self._columns)
        except InputError:
            for row, line in zip(rows.rows, rows.lines):
                yield table.floats(Table(NAME, self._header, [row], [line]), self._columns)
            raise
        yield found
