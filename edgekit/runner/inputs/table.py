"""Windows and vectors from CSV files: a header row with the columns' names, then a row of numbers for each moment.

Commas, semicolons or tabs part the cells, whichever makes the most of the header. Decimals have a point; where
semicolons or tabs part the cells they may have a comma instead, as Excel writes them in Europe. Training reads its
tables by the same code (`edgekit/data/sources/csv_windows.py`, `csv_rows.py`), so a cell is the same float32 in both.
It is Python's float, which is correctly rounded everywhere, rounded once more. Columns are found by name, so their
order in a file is free. Where the input path declares it, a recording is cut into windows, and a table into rows.
Nothing is filled up or guessed.
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
"""What a table can hold."""


@dataclass(frozen=True)
class Table:
    """A file's cells as they are written; `lines` says where in the file each of `rows` ends, counted from 1."""

    name: str
    header: tuple[str, ...]
    rows: list[list[str]]
    lines: list[int]


def samples(path: str, raw: RawSpec, strict: bool = False) -> Iterator[Sample]:
    """Raw samples float32 of the bundle's columns: windows (time, channels), or vectors (features,), a row each.

    Without the step that cuts, the table must have exactly the rows of one sample.
    """
    if raw.kind not in KINDS or not raw.columns or not input_path.find_step(raw.steps, "decode_csv"):
        what = "names no columns" if raw.kind in KINDS else f"takes {raw.dtype}{list(raw.shape)}, not a table"
        raise InputError(f"{path}: the bundle {what}; give it a .npy file")
    content = read_bytes(path, LARGEST_BYTES + 1)
    wanted, cut = (1, "rows") if raw.kind == "vector" else (raw.shape[0], "windows")
    step = None if strict else input_path.find_step(raw.steps, cut)
    if len(content) > LARGEST_BYTES and step:
        raise InputError(
            f"{path}: more than {LARGEST_BYTES:,} bytes; part it: split -l 100000 --additional-suffix=.csv"
        )
    if len(content) > LARGEST_BYTES:
        raise InputError(
            f"{path}: more than {LARGEST_BYTES:,} bytes, for samples of {wanted} rows; {_cut_command(path, wanted)}"
        )
    found = np.concatenate([floats(piece, raw.columns) for piece in pieces(path, content, -1 if step else wanted)])
    rows = len(found)
    if step and cut == "rows" and rows:
        return windows.row_samples(found)
    if step and cut == "windows" and windows.window_count(rows, step):
        return windows.window_samples(found, step)
    if step or rows != wanted:
        longer = "record for longer" if cut == "windows" else "add a row of values"
        count, fix = (f"more than {wanted}", _cut_command(path, wanted)) if rows > wanted else (rows, longer)
        raise InputError(f"{path}: {count} rows, the bundle takes {wanted}; {fix}")
    return iter((Sample(found if cut == "windows" else found[0]),))


def _cut_command(path: str, rows: int) -> str:
    return f"take as many: head -n {rows + 1} {shlex.quote(path)} > {'row' if rows == 1 else 'window'}.csv"


def parse(name: str, content: bytes, most_rows: int = -1) -> Table:
    """The cells of a CSV file, all rows as wide as its header; reading ends behind `most_rows` and one, if given."""
    first, *others = pieces(name, content, most_rows)
    for each in others:
        first.rows.extend(each.rows)
        first.lines.extend(each.lines)
    return first


def pieces(name: str, content: bytes, most_rows: int = -1) -> Iterator[Table]:
    """The same in parts of some thousand rows, one at least: the cells of a long recording fill the memory."""
    try:
        content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{name}: no text in UTF-8 (byte {error.start}); save it as CSV in UTF-8") from None
    try:
        yield from _parsed(name, content, most_rows)
    except csv.Error as error:
        raise InputError(
            f"{name}: cannot be read as CSV ({error}); save it anew, without line breaks in cells"
        ) from None


def floats(table: Table, columns: Sequence[str]) -> np.ndarray:
    """(rows, columns) float32, in the order of `columns`; InputError names the line and the column of a bad cell."""
    places = [_column_position(table, column) for column in columns]
    try:
        values = [[float(row[place]) for place in places] for row in table.rows]
    except ValueError:
        values = []
    with np.errstate(over="ignore"):  # a double too large becomes infinite, which is refused below
        found = np.array(values, np.float64).reshape(-1, len(places)).astype(np.float32)
    if len(found) < len(table.rows) or not np.isfinite(found).all() or _has_underscores(table, places):
        raise InputError(_bad_cell(table, columns, places))
    return found


def is_number(cell: str) -> bool:
    """Whether a cell holds a finite number, within float32's range."""
    try:
        value = float(cell)
    except ValueError:
        return False
    with np.errstate(over="ignore"):
        return "_" not in cell and bool(np.isfinite(np.float32(value)))


def _parsed(name: str, content: bytes, most_rows: int) -> Iterator[Table]:
    """Decoded line by line: as one text, a file takes up to four times its bytes."""
    first = content[: content.find(b"\n") + 1 or None].decode("utf-8-sig")
    text = io.TextIOWrapper(io.BytesIO(content), encoding="utf-8-sig", newline="")
    delimiter = detect_delimiter(first)
    reader = csv.reader(text, delimiter=delimiter)
    header = read_header(name, reader)
    rows: list[list[str]] = []
    lines: list[int] = []
    done = empty = 0
    for row in reader:
        if not row:
            empty = empty or reader.line_num
            continue
        check_row(name, row, reader.line_num, empty, header)
        rows.append(row)
        lines.append(reader.line_num)
        if done + len(rows) == most_rows + 1:
            break
        if len(rows) == PIECE_ROWS:
            yield _table_with_decimal_points(Table(name, header, rows, lines), delimiter)
            done, rows, lines = done + len(rows), [], []
    if rows or not done:
        yield _table_with_decimal_points(Table(name, header, rows, lines), delimiter)


def with_decimal_points(row: list[str], delimiter: str) -> list[str]:
    """The cells of a row, a decimal comma as a point, unless commas part the cells."""
    if delimiter == ",":
        return row
    return [cell.replace(",", ".") if "," in cell and DECIMAL_COMMA.fullmatch(cell) else cell for cell in row]


def _table_with_decimal_points(table: Table, delimiter: str) -> Table:
    """The same table with decimal points; InputError where one column has decimals of both kinds.

    There, a point may part thousands.
    """
    if delimiter == ",":
        return table
    rows = [with_decimal_points(row, delimiter) for row in table.rows]
    changed = {
        place: at for at, row in enumerate(rows) for place, cell in enumerate(row) if cell != table.rows[at][place]
    }
    for row in table.rows:
        for place, at in changed.items():
            if "." in row[place] and is_number(row[place]):
                got = f"got {row[place][:40]!r} and {table.rows[at][place][:40]!r}"
                raise InputError(
                    f"{table.name}, line {table.lines[at]}, column {table.header[place]!r}: {got}; write all decimals "
                    "with a point, or all with a comma"
                )
    return Table(table.name, table.header, rows, table.lines)


def detect_delimiter(text: str) -> str:
    """What makes the most cells of the first line."""
    line = text[: text.find("\n")] if "\n" in text else text
    return max(DELIMITERS, key=lambda each: len(next(csv.reader([line], delimiter=each), [])))


def read_header(name: str, reader: Iterator[list[str]]) -> tuple[str, ...]:
    """The columns' names, the first row of a reader; InputError where they are none."""
    header = tuple(cell.strip() for cell in next(reader, []))
    if not any(header):
        raise InputError(f"{name}: its first line is empty; a row with the columns' names must stand there")
    if all(map(is_number, header)) and header != tuple(map(str, range(len(header)))):
        raise InputError(
            f"{name}: its first line holds numbers ({_shortened(header)}); put the columns' names above them"
        )
    return header


def check_row(name: str, row: Sequence[str], line: int, empty: int, header: Sequence[str]) -> None:
    """InputError for a row that ends at `line` behind an `empty` one, or that is not as wide as the header."""
    if empty:
        raise InputError(f"{name}, line {empty}: empty, and more rows follow; remove the line or fill it")
    if len(row) != len(header):
        raise InputError(
            f"{name}, line {line}: {len(row)} cells, the header has {len(header)} ({_shortened(header)}); "
            "give each row as many"
        )


def _column_position(table: Table, column: str) -> int:
    found = [place for place, name in enumerate(table.header) if name == column]
    if len(found) != 1:
        problem = f"{len(found)} columns are called {column!r}" if found else f"no column {column!r}"
        raise InputError(f"{table.name}: {problem}; its header is {_shortened(table.header)}")
    return found[0]


def _has_underscores(table: Table, places: Sequence[int]) -> bool:
    """Whether a number is written as Python's programs write it, 1_000: elsewhere that is none."""
    return any("_" in row[place] for row in table.rows for place in places)


def _bad_cell(table: Table, columns: Sequence[str], places: Sequence[int]) -> str:
    for line, row in zip(table.lines, table.rows):
        for column, place in zip(columns, places):
            if not is_number(row[place]):
                return f"{table.name}, line {line}, column {column!r}: got {row[place][:40]!r}; {_fix(row[place])}"
    raise AssertionError("every cell is a number")


def _fix(cell: str) -> str:
    if is_number(cell.replace(",", ".")) or is_number(cell.replace(".", "").replace(",", ".")):
        return "write decimals with a point, and nothing between thousands"
    try:
        known = math.isfinite(float(cell)) and "_" not in cell
    except ValueError:
        return "every cell must be a number: fill the gap, or leave the row or the column out"
    if known:
        return "beyond float32's range of 3.4e38: give the column another unit"
    return "write a finite number in digits, or leave the row out: a gap is no measurement"


def _shortened(header: Sequence[str]) -> str:
    more = f" and {len(header) - MAX_NAMES_SHOWN} more" if len(header) > MAX_NAMES_SHOWN else ""
    return ", ".join(map(repr, header[:MAX_NAMES_SHOWN])) + more
