"""Rows of sensor values from a stream: numbers, arrays, or CSV lines, parsed as `inputs/table.py` parses a file."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from edgekit.runner import input_path
from edgekit.runner.errors import InputError
from edgekit.runner.inputs import table
from edgekit.runner.inputs.table import Table

if TYPE_CHECKING:
    from edgekit.runner.bundle.manifest import RawSpec
    from edgekit.runner.streaming.source import Source

NAME = "the stream"
LONGEST_LINE_BYTES = 1 << 20
CSV = "csv"
DTYPES = {"f32le": "<f4", "FLOAT_LE": "<f4", "s16le": "<i2", "S16_LE": "<i2"}
FORMATS = (CSV, *DTYPES)


def parts(source: Source, format: str | None, raw: RawSpec) -> Iterator[np.ndarray]:
    """Yield rows (rows, channels) float32 in parts.

    Raises InputError at the end if the last row is incomplete or invalid.
    """
    coding = DTYPES.get(format or "", "<f4")
    decoder: CsvDecoder | BinaryDecoder = (
        CsvDecoder(raw.columns or ()) if format == CSV else BinaryDecoder(raw.shape[1], coding)
    )
    for part in source:
        if isinstance(part, np.ndarray):
            yield _rows_of_array(part, raw)
        elif format is None:
            raise InputError(f"{NAME}: got bytes; name their format: {', '.join(FORMATS)}")
        else:
            yield from decoder.push(part)
    if format is not None:
        yield from decoder.finish()


def check(format: str | None, raw: RawSpec) -> None:
    """Raise InputError if the bundle's windows cannot arrive in this format."""
    if format is not None and format not in FORMATS:
        raise InputError(f"format: got {str(format)[:40]!r}; rows of sensors are {', '.join(FORMATS)}")
    if raw.dtype != "float32":
        raise InputError(f"{NAME}: the bundle takes windows of {raw.dtype}; only float32 ones can be streamed")
    if format == CSV and (not raw.columns or not input_path.find_step(raw.steps, "decode_csv")):
        raise InputError(f"{NAME}: the bundle names no columns; send float32 rows: --stream f32le, or int16 ones")


class CsvDecoder:
    """Converts CSV lines, the first with column names, into rows (rows, columns) float32 in the order of `columns`."""

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = columns
        self._waiting = b""
        self._header: tuple[str, ...] = ()
        self._delimiter = ""
        self._lines = self._empty = 0  # lines read so far; the first empty line

    def push(self, data: bytes) -> Iterator[np.ndarray]:
        """Yield the rows of the lines that are complete. Raises InputError after the last valid row."""
        self._waiting += data
        end = self._waiting.rfind(b"\n") + 1 if b"\n" in data else 0
        if end == 0 or self._waiting.count(b'"', 0, end) % 2:  # a line end inside quotes does not end the row
            if len(self._waiting) > LONGEST_LINE_BYTES:
                raise InputError(f"{NAME}, line {self._lines + 1}: over {LONGEST_LINE_BYTES:,} bytes without an end")
            return
        lines, self._waiting = self._waiting[:end], self._waiting[end:]
        yield from self._read(lines)

    def finish(self) -> Iterator[np.ndarray]:
        """Yield the last line, which need not end with a line break."""
        if self._waiting:
            yield from self._read(self._waiting)
        if not self._header:
            raise InputError(f"{NAME}: no line arrived; check the output of the program before the pipe")

    def _read(self, data: bytes) -> Iterator[np.ndarray]:
        try:
            text = data.decode("utf-8" if self._lines else "utf-8-sig")
        except UnicodeDecodeError as error:
            valid = data[: data.rfind(b"\n", 0, error.start) + 1]
            if valid:
                yield from self._read(valid)
            raise InputError(f"{NAME}, line {self._lines + 1}: not text in UTF-8; send CSV in UTF-8") from None
        rows = Table(NAME, self._header, [], [])
        problem: InputError | None = None
        try:
            self._delimiter = self._delimiter or table.detect_delimiter(text)
            reader = csv.reader(io.StringIO(text, newline=""), delimiter=self._delimiter)
            if not self._header:
                self._header = table.read_header(NAME, reader)
                rows = Table(NAME, self._header, [], [])
                table.floats(rows, self._columns)  # checks that the columns exist
            for row in reader:
                line = self._lines + reader.line_num
                if not row:
                    self._empty = self._empty or line
                    continue
                table.check_row(NAME, row, line, self._empty, self._header)
                rows.rows.append(table.with_decimal_points(row, self._delimiter))
                rows.lines.append(line)
            self._lines += reader.line_num
        except csv.Error as error:
            problem = InputError(f"{NAME}: cannot be read as CSV ({error}); send lines without line breaks in cells")
        except InputError as error:
            problem = error
        if rows.rows:
            yield from self._floats(rows)
        if problem is not None:
            raise problem

    def _floats(self, rows: Table) -> Iterator[np.ndarray]:
        """Yield the rows. If one has an invalid cell, yield those before it and then raise its InputError."""
        try:
            values = table.floats(rows, self._columns)
        except InputError:
            for row, line in zip(rows.rows, rows.lines):
                yield table.floats(Table(NAME, self._header, [row], [line]), self._columns)
            raise
        yield values


class BinaryDecoder:
    """Converts little-endian numbers, one per channel in the bundle's order, into rows. Integers keep their values."""

    def __init__(self, channels: int, coding: str) -> None:
        self._coding = np.dtype(coding)
        self._channels, self._row_bytes = channels, self._coding.itemsize * channels
        self._rest = b""
        self._rows = 0

    def push(self, data: bytes) -> Iterator[np.ndarray]:
        """Yield the complete rows."""
        data = self._rest + data
        complete_bytes = len(data) // self._row_bytes * self._row_bytes
        self._rest = data[complete_bytes:]
        self._rows += complete_bytes // self._row_bytes
        yield (
            np.frombuffer(data[:complete_bytes], self._coding)
            .astype(np.float32, copy=False)
            .reshape(-1, self._channels)
        )

    def finish(self) -> Iterator[np.ndarray]:
        """Raise InputError if a row is incomplete."""
        if self._rest:
            raise InputError(
                f"{NAME} ended in the middle of a row, after {self._rows} rows: {len(self._rest)} of its "
                f"{self._row_bytes} bytes have arrived; the bundle takes {self._channels} values a row"
            )
        return iter(())


def _rows_of_array(x: np.ndarray, raw: RawSpec) -> np.ndarray:
    channels = raw.shape[1]
    if x.dtype not in (np.float32, np.int16) or x.ndim not in (1, 2) or x.shape[-1] != channels:
        raise InputError(
            f"source: got an array of {x.dtype}{list(x.shape)}; rows are float32 or int16 of ({channels},) or (rows, "
            f"{channels})"
        )
    return x.astype(np.float32, copy=False).reshape(-1, channels)
