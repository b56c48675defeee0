"""Tables as the page shows them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from edgekit.report.columns import Column, Row


@dataclass(frozen=True)
class Line:
    """One row; `kind` is its class in the style sheet: ships, inside, out, limit, or nothing."""

    cells: Sequence[str]
    kind: str = ""


@dataclass(frozen=True)
class Grid:
    """Cells under named columns; `numeric` columns stand to the right, `words` may break over lines."""

    caption: str
    columns: Sequence[str]
    lines: Sequence[Line]
    numeric: frozenset[str] = field(default_factory=frozenset)
    words: frozenset[str] = field(default_factory=frozenset)


def grid(
    caption: str, columns: Sequence[str], rows: Iterable[Sequence[str]], numeric: str = "", words: str = ""
) -> Grid:
    """A plain one; `numeric` and `words` name columns, with `|` between them."""
    lines = [Line(list(row)) for row in rows]
    return Grid(caption, columns, lines, frozenset(numeric.split("|")), frozenset(words.split("|")))


def grid_of(
    caption: str, columns: Sequence[Column[Row]], rows: Iterable[Row], kind: Callable[[Row], str] = lambda row: ""
) -> Grid:
    """A table that notebooks show too; `kind` tells the class of a row in the style sheet."""
    lines = [Line([column.text(row) for column in columns], kind(row)) for row in rows]
    numeric = frozenset(column.heading for column in columns if column.numeric)
    breaks = frozenset(column.heading for column in columns if column.breaks)
    return Grid(caption, [column.heading for column in columns], lines, numeric, breaks)
