"""A column of a table that several places show: console, notebooks and report page only lay it out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from edgekit.report.formatting import Table

Row = TypeVar("Row")


@dataclass(frozen=True)
class Column(Generic[Row]):
    """A heading, and what stands below it for a row; `breaks`: whether the text may break over lines."""

    heading: str
    text: Callable[[Row], str]
    numeric: bool = True
    breaks: bool = False


def as_table(columns: Sequence[Column[Row]], rows: Iterable[Row], title: str = "") -> Table:
    """As a notebook shows it."""
    cells = [[column.text(row) for column in columns] for row in rows]
    return Table([column.heading for column in columns], cells, title)
