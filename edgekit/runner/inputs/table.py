"""Windows and vectors from CSV files: a header row with column names, then one row of numbers per moment.

Cells are separated by commas, semicolons or tabs, whichever gives the most cells in the header. Decimals are written
with a point, or, if semicolons or tabs separate the cells, with a comma as in European Excel files. Training reads its
tables by the same code (`edgekit/data/sources/csv_windows.py`, `csv_rows.py`), so a cell becomes the same float32 in
both: Python's correctly rounded float, rounded once more. Columns are found by name, so their order is free. If the
input path declares it, a recording is cut into windows, and a table into rows. Nothing is padded or guessed.
"""

from __future__ import annotations

import csv
import io
import math
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from edgekit.runner import input_path
from edgekit.runner.errors import InputError
from edgekit.runner.inputs import read_bytes, windows
from edgekit.runner.inputs.windows import Sample

if TYPE_CHECKING:
    from edgekit.runner.bundle.manifest import RawSpec

DELIMITERS = ",;\t"
DECIMAL_COMMA = re.compile(r"\s*[+-]?\d*,\d+(?:[eE][+-]?\d+)?\s*")
LARGEST_BYTES = 64 << 20
PIECE_ROWS = 8192
MAX_NAMES_SHOWN = 12
KINDS = ("vector", "window")
"""Kinds of samples that a table can hold."""


@dataclass(frozen=True)
class Table:
    """A file's cells as text. `lines` gives the line of the file on which each of `rows` ends, counted from 1."""

    name: str
    header: tuple[str, ...]
    rows: list[list[str]]
    lines: list[int]


def samples(path: str, raw: RawSpec, strict: bool = False) -> Iterator[Sample]:
    """Yield raw samples float32 with the bundle's columns: windows (time, channels), or one vector (features,) per row.

    Without a step that cuts it, the table must have exactly the rows of one sample.
    """
    if raw.kind not in KINDS or not raw.columns or not input_path.find_step(raw.steps, "decode_csv"):
        problem = "names no columns" if raw.kind in KINDS else f"takes {raw.dtype}{list(raw.shape)}, not a table"
        raise InputError(f"{path}: the bundle {problem}; give it a .npy file")
    content = read_bytes(path, LARGEST_BYTES + 1)
    sample_rows, step_name = (1, "rows") if raw.kind == "vector" else (raw.shape[0], "windows")
    step = None if strict else input_path.find_step(raw.steps, step_name)
    if len(content) > LARGEST_BYTES and step:
        raise InputError(
            f"{path}: more than {LARGEST_BYTES:,} bytes; divide it: split -l 100000 --additional-suffix=.csv"
        )
    if len(content) > LARGEST_BYTES:
        raise InputError(
            f"{path}: more than {LARGEST_BYTES:,} bytes, for samples of {sample_rows} rows; "
            f"{_cut_command(path, sample_rows)}"
        )
    values = np.concatenate(
        [floats(piece, raw.columns) for piece in pieces(path, content, -1 if step else sample_rows)]
    )
    rows = len(values)
    if step and step_name == "rows" and rows:
        return windows.row_samples(values)
    if step and step_name == "windows" and windows.window_count(rows, step):
        return windows.window_samples(values, step)
    if step or rows != sample_rows:
        advice = "record for longer" if step_name == "windows" else "add a row of values"
        count, fix = (
            (f"more than {sample_rows}", _cut_command(path, sample_rows)) if rows > sample_rows else (rows, advice)
        )
        raise InputError(f"{path}: {count} rows, but the bundle takes {sample_rows}; {fix}")
    return iter((Sample(values if step_name == "windows" else values[0]),))


def _cut_command(path: str, rows: int) -> str:
    return f"take that many: head -n {rows + 1} {shlex.quote(path)} > {'row' if rows == 1 else 'window'}.csv"


def parse(name: str, content: bytes, max_rows: int = -1) -> Table:
    """Return the cells of a CSV file. All rows are as wide as the header. Reading stops after `max_rows` + 1 rows."""
    first, *rest = pieces(name, content, max_rows)
    for piece in rest:
        first.rows.extend(piece.rows)
        first.lines.extend(piece.lines)
    return first


def pieces(name: str, content: bytes, max_rows: int = -1) -> Iterator[Table]:
    """Yield a CSV file in parts of some thousand rows, because the cells of a long recording would fill the memory."""
    try:
        content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{name}: not text in UTF-8 (byte {error.start}); save it as CSV in UTF-8") from None
    try:
        yield from _parse_lines(name, content, max_rows)
    except csv.Error as error:
        raise InputError(
            f"{name}: cannot be read as CSV ({error}); save it again, without line breaks in cells"
        ) from None


def floats(table: Table, columns: Sequence[str]) -> np.ndarray:
    """Return (rows, columns) float32 in the order of `columns`. InputError names the line and column of a bad cell."""
    positions = [_column_position(table, column) for column in columns]
    try:
        values = [[float(row[position]) for position in positions] for row in table.rows]
    except ValueError:
        values = []
    with np.errstate(over="ignore"):  # a double beyond float32 becomes infinite, which is refused below
        array = np.array(values, np.float64).reshape(-1, len(positions)).astype(np.float32)
    if len(array) < len(table.rows) or not np.isfinite(array).all() or _has_underscores(table, positions):
        raise InputError(_bad_cell(table, columns, positions))
    return array


def is_number(cell: str) -> bool:
    """Whether a cell holds a finite number within float32's range."""
    try:
        value = float(cell)
    except ValueError:
        return False
    with np.errstate(over="ignore"):
        return "_" not in cell and bool(np.isfinite(np.float32(value)))


def _parse_lines(name: str, content: bytes, max_rows: int) -> Iterator[Table]:
    """Parse line by line, because a file that is decoded as a whole takes up to four times its size."""
    first = content[: content.find(b"\n") + 1 or None].decode("utf-8-sig")
    text = io.TextIOWrapper(io.BytesIO(content), encoding="utf-8-sig", newline="")
    delimiter = detect_delimiter(first)
    reader = csv.reader(text, delimiter=delimiter)
    header = read_header(name, reader)
    rows: list[list[str]] = []
    lines: list[int] = []
    row_count = first_empty_line = 0
    for row in reader:
        if not row:
            first_empty_line = first_empty_line or reader.line_num
            continue
        check_row(name, row, reader.line_num, first_empty_line, header)
        rows.append(row)
        lines.append(reader.line_num)
        if row_count + len(rows) == max_rows + 1:
            break
        if len(rows) == PIECE_ROWS:
            yield _table_with_decimal_points(Table(name, header, rows, lines), delimiter)
            row_count, rows, lines = row_count + len(rows), [], []
    if rows or not row_count:
        yield _table_with_decimal_points(Table(name, header, rows, lines), delimiter)


def with_decimal_points(row: list[str], delimiter: str) -> list[str]:
    """Return a row's cells with decimal commas changed to points, unless commas separate the cells."""
    if delimiter == ",":
        return row
    return [cell.replace(",", ".") if "," in cell and DECIMAL_COMMA.fullmatch(cell) else cell for cell in row]


def _table_with_decimal_points(table: Table, delimiter: str) -> Table:
    """Return the table with decimal points.

    Raises InputError if a column has decimals of both kinds, because a point may then separate thousands.
    """
    if delimiter == ",":
        return table
    rows = [with_decimal_points(row, delimiter) for row in table.rows]
    comma_rows = {
        column: row_index
        for row_index, row in enumerate(rows)
        for column, cell in enumerate(row)
        if cell != table.rows[row_index][column]
    }
    for row in table.rows:
        for column, row_index in comma_rows.items():
            if "." in row[column] and is_number(row[column]):
                got = f"got {row[column][:40]!r} and {table.rows[row_index][column][:40]!r}"
                raise InputError(
                    f"{table.name}, line {table.lines[row_index]}, column {table.header[column]!r}: {got}; write all "
                    "decimals with a point, or all with a comma"
                )
    return Table(table.name, table.header, rows, table.lines)


def detect_delimiter(text: str) -> str:
    """Return the delimiter that gives the most cells in the first line."""
    line = text[: text.find("\n")] if "\n" in text else text
    return max(DELIMITERS, key=lambda each: len(next(csv.reader([line], delimiter=each), [])))


def read_header(name: str, reader: Iterator[list[str]]) -> tuple[str, ...]:
    """Return the column names from the first row of a reader. Raises InputError if they are not names."""
    header = tuple(cell.strip() for cell in next(reader, []))
    if not any(header):
        raise InputError(f"{name}: its first line is empty; a row with the columns' names must be there")
    if all(map(is_number, header)) and header != tuple(map(str, range(len(header)))):
        raise InputError(
            f"{name}: its first line holds numbers ({_header_text(header)}); put the columns' names above them"
        )
    return header


def check_row(name: str, row: Sequence[str], line: int, first_empty_line: int, header: Sequence[str]) -> None:
    """Raise InputError for a row that follows an empty line, or that is not as wide as the header."""
    if first_empty_line:
        raise InputError(f"{name}, line {first_empty_line}: empty, and more rows follow; remove the line or fill it")
    if len(row) != len(header):
        raise InputError(
            f"{name}, line {line}: {len(row)} cells, but the header has {len(header)} "
            f"({_header_text(header)}); give each row as many cells"
        )


def _column_position(table: Table, column: str) -> int:
    matches = [position for position, name in enumerate(table.header) if name == column]
    if len(matches) != 1:
        problem = f"{len(matches)} columns are called {column!r}" if matches else f"no column {column!r}"
        raise InputError(f"{table.name}: {problem}; its header is {_header_text(table.header)}")
    return matches[0]


def _has_underscores(table: Table, positions: Sequence[int]) -> bool:
    """Whether a number is written like 1_000, which Python's `float` accepts but other programs do not."""
    return any("_" in row[position] for row in table.rows for position in positions)


def _bad_cell(table: Table, columns: Sequence[str], positions: Sequence[int]) -> str:
    for line, row in zip(table.lines, table.rows):
        for column, position in zip(columns, positions):
            if not is_number(row[position]):
                return (
                    f"{table.name}, line {line}, column {column!r}: got {row[position][:40]!r}; {_fix(row[position])}"
                )
    raise AssertionError("every cell is a number")


def _fix(cell: str) -> str:
    if is_number(cell.replace(",", ".")) or is_number(cell.replace(".", "").replace(",", ".")):
        return "write decimals with a point, and nothing between thousands"
    try:
        is_finite = math.isfinite(float(cell)) and "_" not in cell
    except ValueError:
        return "every cell must be a number: fill the gap, or leave the row or the column out"
    if is_finite:
        return "beyond float32's range of 3.4e38: give the column another unit"
    return "write a finite number in digits, or leave the row out: a gap is not a measurement"


def _header_text(header: Sequence[str]) -> str:
    more = f" and {len(header) - MAX_NAMES_SHOWN} more" if len(header) > MAX_NAMES_SHOWN else ""
    return ", ".join(map(repr, header[:MAX_NAMES_SHOWN])) + more
