"""Labelled texts in one table, a row each: TSV or CSV in UTF-8, as token ids (tokens,) int32.

Cells of a TSV stand as they are between tabs, quotation marks and all. Cells of a CSV may be quoted, with line breaks
inside. On the device a text is a row of such a table or a file of its own; the same text has the same ids there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field

from edgekit.core.errors import DataError
from edgekit.data.paths import PathText, existing_path, file_stamp
from edgekit.data.texts import TextSourceConfig, vocabulary_identity
from edgekit.data.types import Pools, ProgressCallback
from edgekit.runner import input_path
from edgekit.runner.input_path import DELIMITERS

TASKS = ("classification", "embedding")
LARGEST_BYTES = 1 << 30

Row = tuple[int, list[str]]
"""The line that it ends in, counted from 1, and its cells."""


class TextTableConfig(TextSourceConfig):
    """Options of a table of texts."""

    source: Literal["text_table"] = "text_table"
    path: PathText = Field(description="path of the .tsv or .csv file, in UTF-8")
    delimiter: Literal["tab", "comma", "semicolon"] = Field(
        "tab", description="what parts the cells; between tabs nothing is quoted"
    )
    header: bool = Field(True, description="whether the first row names the columns")
    text: str | int = Field("text", description="column of the texts: its name, or its number, counted from 1")
    label: str | int = Field("label", description="column of the classes: its name, or its number, counted from 1")

    @property
    def table(self) -> dict[str, Any]:
        """How the device finds the texts in such a table."""
        return input_path.text_table_step(self.delimiter, self.header, self.text)


def identity(config: TextTableConfig) -> list[object]:
    """The files, by what the file system says of them, and the vocabulary."""
    return [*file_stamp(existing_path(config.path, "data.path")), *vocabulary_identity(config)]


def read(config: TextTableConfig, progress: ProgressCallback | None = None) -> Pools:
    """Pools of (n, tokens) int32; all rows are the train pool."""
    import numpy as np

    from edgekit.data import texts

    path = existing_path(config.path, "data.path")
    rows = read_rows(path.name, _content(config), DELIMITERS[config.delimiter])
    named_in, header = next(rows, (1, [])) if config.header else (0, [])
    found, names, labels = [], [], []
    places: tuple[int, int] | None = None
    for line, cells in rows:
        where = f"{path.name}, line {line}"
        if places is None:
            first = f"{path.name}, line {named_in or line}"
            texts_at, labels_at = (
                _place(of, header or cells, first, option, config.header)
                for option, of in (("text", config.text), ("label", config.label))
            )
            places = texts_at, labels_at
        wanted = len(header) if header else max(places) + 1
        if len(cells) != wanted if header else len(cells) < wanted:
            raise DataError(f"{where}: {len(cells)} cells, {wanted} are needed; check data.delimiter and data.header")
        label = cells[places[1]].strip()
        if not label:
            raise DataError(f"{where}: the label is empty; fill it, or leave the row out")
        found.append(cells[places[0]])
        names.append(where)
        labels.append(label)
    if not found:
        raise DataError(f"{path.name}: no row with a text; check data.delimiter and data.header")
    classes, y = np.unique(np.array(labels), return_inverse=True)
    given = {"train": texts.SplitTexts(found, names, y.astype(np.int64))}
    return texts.text_pools(given, tuple(map(str, classes)), config, [])


def read_rows(name: str, content: bytes, delimiter: str) -> Iterator[Row]:
    """The rows of a table that hold anything, as the device reads them; DataError where it is none."""
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
        raise DataError(f"{path.name}: more than {LARGEST_BYTES:,} bytes; give fewer rows")
    return content


def _place(column: str | int, cells: list[str], where: str, option: str, header: bool) -> int:
    """Where the column stands, counted from 0."""
    from edgekit.runner.errors import InputError
    from edgekit.runner.inputs import text_table

    if isinstance(column, str) and not header:
        raise DataError(f"data.{option}: got {column!r}, and without a header columns have no names; give its number")
    try:
        return text_table.column_position(column, cells, where)
    except InputError as error:
        raise DataError(f"data.{option}: {error}") from None
