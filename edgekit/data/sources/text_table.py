"""Labelled texts in one table, one per row: TSV or CSV in UTF-8, as token ids (tokens,) int32.

Cells of a TSV are taken literally, including quotation marks. Cells of a CSV may be quoted and may contain line breaks.
On the device, a text is a row of such a table or a file of its own, and gets the same ids as here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field

from edgekit.core.errors import DataError
from edgekit.core.paths import PathText, existing_path, file_stamp
from edgekit.data.texts import TextSourceConfig, vocabulary_identity
from edgekit.data.types import Pools, ProgressCallback
from edgekit.runner import input_path
from edgekit.runner.input_path import DELIMITERS

TASKS = ("classification", "embedding")
LARGEST_BYTES = 1 << 30

Row = tuple[int, list[str]]
"""A row: the number of the line in which it ends, counted from 1, and its cells."""


class TextTableConfig(TextSourceConfig):
    """Options of a table of texts."""

    source: Literal["text_table"] = "text_table"
    path: PathText = Field(description="path of the .tsv or .csv file, in UTF-8")
    delimiter: Literal["tab", "comma", "semicolon"] = Field(
        "tab", description="separator of the cells; if it is a tab, quotation marks have no meaning"
    )
    header: bool = Field(True, description="whether the first row names the columns")
    text: str | int = Field("text", description="column of the texts: its name, or its number, counted from 1")
    label: str | int = Field("label", description="column of the classes: its name, or its number, counted from 1")

    @property
    def table(self) -> dict[str, Any]:
        """The step that extracts the texts from such a table on the device."""
        return input_path.text_table_step(self.delimiter, self.header, self.text)


def identity(config: TextTableConfig) -> list[object]:
    """Return the stamp of the file, and the identity of the vocabulary."""
    return [*file_stamp(existing_path(config.path, "data.path")), *vocabulary_identity(config)]


def read(config: TextTableConfig, progress: ProgressCallback | None = None) -> Pools:
    """Return pools of (n, tokens) int32. All rows form the train pool."""
    import numpy as np

    from edgekit.data import texts

    path = existing_path(config.path, "data.path")
    rows = read_rows(path.name, _content(config), DELIMITERS[config.delimiter])
    header_line, header = next(rows, (1, [])) if config.header else (0, [])
    contents, names, labels = [], [], []
    columns: tuple[int, int] | None = None
    for line, cells in rows:
        where = f"{path.name}, line {line}"
        if columns is None:
            first = f"{path.name}, line {header_line or line}"
            texts_at, labels_at = (
                _column_index(column, header or cells, first, option, config.header)
                for option, column in (("text", config.text), ("label", config.label))
            )
            columns = texts_at, labels_at
        cell_count = len(header) if header else max(columns) + 1
        if len(cells) != cell_count if header else len(cells) < cell_count:
            raise DataError(
                f"{where}: {len(cells)} cells instead of {cell_count}; check data.delimiter and data.header"
            )
        label = cells[columns[1]].strip()
        if not label:
            raise DataError(f"{where}: the label is empty; fill it in, or leave the row out")
        contents.append(cells[columns[0]])
        names.append(where)
        labels.append(label)
    if not contents:
        raise DataError(f"{path.name}: no row contains a text; check data.delimiter and data.header")
    classes, y = np.unique(np.array(labels), return_inverse=True)
    texts_by_split = {"train": texts.SplitTexts(contents, names, y.astype(np.int64))}
    return texts.text_pools(texts_by_split, tuple(map(str, classes)), config, [])


def read_rows(name: str, content: bytes, delimiter: str) -> Iterator[Row]:
    """Yield the non-empty rows of a table, as the device reads them. Raises DataError if it is not a table."""
    from edgekit.runner.errors import InputError
    from edgekit.runner.inputs import text_table

    try:
        yield from text_table.rows(name, content, delimiter)
    except InputError as error:
        raise DataError(str(error)) from None


def _content(config: TextTableConfig) -> bytes:
    path = existing_path(config.path, "data.path")
    try:
        with open(path, "rb") as stream:
            content = stream.read(LARGEST_BYTES + 1)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); data.path must be a file") from None
    if len(content) > LARGEST_BYTES:
        raise DataError(f"{path.name}: more than {LARGEST_BYTES:,} bytes; use fewer rows")
    return content


def _column_index(column: str | int, cells: list[str], where: str, option: str, header: bool) -> int:
    """Return the index of the column, counted from 0."""
    from edgekit.runner.errors import InputError
    from edgekit.runner.inputs import text_table

    if isinstance(column, str) and not header:
        raise DataError(f"data.{option}: got {column!r}, but without a header columns have no names; give its number")
    try:
        return text_table.column_position(column, cells, where)
    except InputError as error:
        raise DataError(f"data.{option}: {error}") from None
