"""Tables for notebooks and the terminal (`Table`), and for the page (`Grid`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

Row = TypeVar("Row")


@dataclass(frozen=True)
class Table:
    """Rows of cells under named columns. The caller formats the numbers."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    title: str = ""

    def _repr_markdown_(self) -> str:
        if self.title and not self.rows:  # the title says why there are none
            return f"**{_escape_html(self.title)}**"
        align = ["---" if column == 0 or not self._numeric(column) else "---:" for column in range(len(self.columns))]
        cells = [list(self.columns), *[[_cell(cell) for cell in row] for row in self.rows]]
        escaped = [[_escape_html(cell).replace("|", "\\|") for cell in row] for row in cells]
        body = "\n".join("| " + " | ".join(line) + " |" for line in [escaped[0], align, *escaped[1:]])
        return f"**{_escape_html(self.title)}**\n\n{body}" if self.title else body

    def __repr__(self) -> str:
        if self.title and not self.rows:
            return self.title
        cells = [list(self.columns), *[[_cell(cell) for cell in row] for row in self.rows]]
        widths = [max(len(row[column]) for row in cells) for column in range(len(self.columns))]
        lines = [
            "  ".join(
                cell.rjust(width) if column and self._numeric(column) else cell.ljust(width)
                for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in cells
        ]
        head = [self.title, *lines[:1]] if self.title else lines[:1]
        return "\n".join([*head, "  ".join("─" * width for width in widths), *lines[1:]])

    def _numeric(self, column: int) -> bool:
        cells = [_cell(row[column]).strip() for row in self.rows]
        return bool(cells) and all(cell[:1].isdigit() or cell[:1] in "+-−–.<" or not cell for cell in cells)


def _cell(value: Any) -> str:
    return "" if value is None else str(value)


def _escape_html(text: str) -> str:
    """Escape a text for Markdown, in which HTML tags have a meaning."""
    return text.replace("&", "&amp;").replace("<", "&lt;")


@dataclass(frozen=True)
class Column(Generic[Row]):
    """A heading, and the function that returns its text for a row. `breaks` says whether the text may be wrapped."""

    heading: str
    text: Callable[[Row], str]
    numeric: bool = True
    breaks: bool = False


def build_table(columns: Sequence[Column[Row]], rows: Iterable[Row], title: str = "") -> Table:
    """Build a table for a notebook. `title` is its heading."""
    cells = [[column.text(row) for column in columns] for row in rows]
    return Table([column.heading for column in columns], cells, title)


@dataclass(frozen=True)
class Line:
    """A row of a grid. `kind` is its class in the style sheet: ships, inside, out, limit, or empty."""

    cells: Sequence[str]
    kind: str = ""


@dataclass(frozen=True)
class Grid:
    """Cells under named columns.

    `numeric` columns are aligned right, and cells of the columns in `words` may be wrapped.
    """

    caption: str
    columns: Sequence[str]
    lines: Sequence[Line]
    numeric: frozenset[str] = field(default_factory=frozenset)
    words: frozenset[str] = field(default_factory=frozenset)


def grid(
    caption: str, columns: Sequence[str], rows: Iterable[Sequence[str]], numeric: str = "", words: str = ""
) -> Grid:
    """Build a grid from rows of cells. `numeric` and `words` name columns, separated by `|`."""
    lines = [Line(list(row)) for row in rows]
    return Grid(caption, columns, lines, frozenset(numeric.split("|")), frozenset(words.split("|")))


def grid_from_columns(
    caption: str, columns: Sequence[Column[Row]], rows: Iterable[Row], kind: Callable[[Row], str] = lambda row: ""
) -> Grid:
    """Build a grid with the same columns as a table. `kind` returns the style class of a row."""
    lines = [Line([column.text(row) for column in columns], kind(row)) for row in rows]
    numeric = frozenset(column.heading for column in columns if column.numeric)
    breaks = frozenset(column.heading for column in columns if column.breaks)
    return Grid(caption, [column.heading for column in columns], lines, numeric, breaks)
