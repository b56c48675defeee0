"""Tables as the page shows them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from edgekit.report.formatting import faster, span, times


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


def ends(row: Mapping[str, Any], key: str) -> tuple[float, float, float] | None:
    """A ratio and its interval; None where nothing was compared."""
    found = (row.get(key), row.get(f"{key}_low"), row.get(f"{key}_high"))
    return None if None in found else found  # type: ignore[return-value]


def ratio(row: Mapping[str, Any], key: str) -> str:
    """12.3× (11.9–12.7)."""
    found = ends(row, key)
    return "–" if found is None else f"{times(found[0])} ({span(*found[1:])})"


def ratio_text(row: Mapping[str, Any], key: str) -> str:
    """12.3× faster (11.9–12.7); no difference (0.97–1.04)."""
    found = ends(row, key)
    return "–" if found is None else f"{faster(*found)} ({span(*found[1:])})"
