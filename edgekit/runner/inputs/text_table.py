"""Samples from tables of texts, a row each: TSV or CSV in UTF-8, as the step `decode_text_table` describes them.

Cells of a TSV stand as they are between tabs, quotation marks and all. Cells of a CSV may be quoted, with line breaks
inside. Training reads its tables by the same code (`edgekit/data/sources/text_table.py`).
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
    """A raw sample for each row; with `strict` a table of one row is taken, and no other."""
    step, tokenize = input_path.find_step(raw.steps, "decode_text_table"), input_path.find_step(raw.steps, "tokenize")
    assert step is not None and tokenize is not None
    content = read_bytes(path, LARGEST_BYTES + 1)
    if len(content) > LARGEST_BYTES:
        raise InputError(f"{path}: more than {LARGEST_BYTES:,} bytes; part it")
    found = list(_texts(path, content, step))
    if not found or (strict and len(found) > 1):
        fix = "give it as many, or leave --strict out" if found else "check the delimiter and the header"
        raise InputError(f"{path}: {len(found)} rows, the bundle takes 1; {fix}")
    tokenizer = tokenization.read_tokenizer(members[tokenize["vocabulary"]], tokenize["vocabulary"])
    for number, (line, cell) in enumerate(found, 1):
        made = text.nonempty_token_ids(f"{path}, line {line}", cell, tokenizer, tokenize, strict)
        yield Sample(made.raw, Row(number, made.cut))


def _texts(path: str, content: bytes, step: input_path.Step) -> Iterator[tuple[int, str]]:
    """The cells of the column of the texts, each with the line that its row ends in."""
    place = width = None
    for line, cells in rows(path, content, input_path.DELIMITERS[step["delimiter"]]):
        where = f"{path}, line {line}"
        if place is None:
            place = column_position(step["column"], cells, where)
            width = len(cells)
            if step["header"]:
                continue
        if len(cells) != width if step["header"] else len(cells) <= place:
            raise InputError(f"{where}: {len(cells)} cells, {width} are needed; a {step['delimiter']} parts them")
        yield line, cells[place]


def rows(name: str, content: bytes, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """The rows that hold anything, each with the line that it ends in, counted from 1; InputError where it is none."""
    try:
        whole = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise InputError(f"{name}, line {line}: no text in UTF-8 (byte {error.start}); save it in UTF-8") from None
    if "\0" in whole:
        line = whole[: whole.index("\0")].count("\n") + 1
        raise InputError(f"{name}, line {line}: holds U+0000, so it is no text, or UTF-16; save it in UTF-8")
    if delimiter == "\t":
        for number, line_text in enumerate(whole.split("\n"), 1):
            if line_text.strip():
                yield number, line_text.removesuffix("\r").split("\t")
        return
    reader = csv.reader(io.StringIO(whole, newline=""), delimiter=delimiter, strict=True)
    try:
        for cells in reader:
            if cells:
                yield reader.line_num, cells
    except csv.Error as error:
        raise InputError(
            f"{name}, line {reader.line_num}: no CSV ({error}); double a quotation mark in a cell"
        ) from None


def column_position(wanted: str | int, cells: Sequence[str], where: str) -> int:
    """Where a column stands in the first row, counted from 0: by its name in a header, or by its number from 1."""
    if isinstance(wanted, int):
        if 1 <= wanted <= len(cells):
            return wanted - 1
        raise InputError(f"{where}: no column {wanted}, it has {len(cells)}, counted from 1")
    names = [cell.strip() for cell in cells]
    if names.count(wanted) != 1:
        raise InputError(
            f"{where}: no one column {wanted!r}; the header is {', '.join(map(repr, names[:MAX_NAMES_SHOWN]))}"
        )
    return names.index(wanted)
