"""Samples from tables of texts, one per row: TSV or CSV in UTF-8, as the step `decode_text_table` describes them.

Cells of a TSV are everything between tabs, quotation marks included. Cells of a CSV may be quoted and contain line
breaks. Training reads its tables by the same code (`edgekit/data/sources/text_table.py`).
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from edgekit.runner import input_path, tokenization
from edgekit.runner.errors import InputError
from edgekit.runner.inputs import read_bytes, text
from edgekit.runner.inputs.windows import Row, Sample

if TYPE_CHECKING:
    from edgekit.runner.bundle.manifest import RawSpec

LARGEST_BYTES = 64 << 20
MAX_NAMES_SHOWN = 8


def samples(path: str, raw: RawSpec, strict: bool, members: Mapping[str, bytes]) -> Iterator[Sample]:
    """Yield a raw sample for each row. With `strict`, the table must have exactly one row."""
    step, tokenize = input_path.find_step(raw.steps, "decode_text_table"), input_path.find_step(raw.steps, "tokenize")
    assert step is not None and tokenize is not None
    content = read_bytes(path, LARGEST_BYTES + 1)
    if len(content) > LARGEST_BYTES:
        raise InputError(f"{path}: more than {LARGEST_BYTES:,} bytes; divide it")
    texts = list(_texts(path, content, step))
    if not texts or (strict and len(texts) > 1):
        fix = "give one row, or leave --strict out" if texts else "check the delimiter and the header"
        raise InputError(f"{path}: {len(texts)} rows, but the bundle takes 1 text; {fix}")
    tokenizer = tokenization.read_tokenizer(members[tokenize["vocabulary"]], tokenize["vocabulary"])
    for number, (line, cell) in enumerate(texts, 1):
        token_sample = text.nonempty_token_ids(f"{path}, line {line}", cell, tokenizer, tokenize, strict)
        yield Sample(token_sample.raw, Row(number, token_sample.cut))


def _texts(path: str, content: bytes, step: input_path.Step) -> Iterator[tuple[int, str]]:
    """Yield the cells of the text column, each with the line on which its row ends."""
    position = width = None
    for line, cells in rows(path, content, input_path.DELIMITERS[step["delimiter"]]):
        where = f"{path}, line {line}"
        if position is None:
            position = column_position(step["column"], cells, where)
            width = len(cells)
            if step["header"]:
                continue
        if len(cells) != width if step["header"] else len(cells) <= position:
            raise InputError(
                f"{where}: {len(cells)} cells, but {width} are needed; they are separated by a {step['delimiter']}"
            )
        yield line, cells[position]


def rows(name: str, content: bytes, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the non-empty rows, each with the line on which it ends, counted from 1. Raises InputError for bad rows."""
    try:
        decoded = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise InputError(f"{name}, line {line}: not text in UTF-8 (byte {error.start}); save it in UTF-8") from None
    if "\0" in decoded:
        line = decoded[: decoded.index("\0")].count("\n") + 1
        raise InputError(f"{name}, line {line}: holds U+0000, so it is not text, or it is UTF-16; save it in UTF-8")
    if delimiter == "\t":
        for number, line_text in enumerate(decoded.split("\n"), 1):
            if line_text.strip():
                yield number, line_text.removesuffix("\r").split("\t")
        return
    reader = csv.reader(io.StringIO(decoded, newline=""), delimiter=delimiter, strict=True)
    try:
        for cells in reader:
            if cells:
                yield reader.line_num, cells
    except csv.Error as error:
        raise InputError(
            f"{name}, line {reader.line_num}: not CSV ({error}); write each quotation mark in a cell twice"
        ) from None


def column_position(name_or_number: str | int, cells: Sequence[str], where: str) -> int:
    """Return the position of a column in its row, counted from 0, by its name in the header or its number from 1."""
    if isinstance(name_or_number, int):
        if 1 <= name_or_number <= len(cells):
            return name_or_number - 1
        raise InputError(f"{where}: no column {name_or_number}; it has {len(cells)}, counted from 1")
    names = [cell.strip() for cell in cells]
    if names.count(name_or_number) != 1:
        raise InputError(
            f"{where}: not exactly one column {name_or_number!r}; the header is "
            f"{', '.join(map(repr, names[:MAX_NAMES_SHOWN]))}"
        )
    return names.index(name_or_number)
