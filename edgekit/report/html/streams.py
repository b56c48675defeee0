"""Answers over time of what ships, as the page shows them."""

from __future__ import annotations

from edgekit.core.schema.result import Result
from edgekit.report.html.rows import Grid, grid
from edgekit.report.tables.streams import COLUMNS, rows, said_of


def build_grid(result: Result) -> Grid | None:
    """Every way to smooth them, bundle by bundle; None where validation has no order in time."""
    found = result["streams"]
    if not found:
        return None
    said = said_of(found)
    numeric = "|".join(COLUMNS[2:-1])
    return grid(f"{said[0].upper()}{said[1:]}", COLUMNS, rows(found), numeric, "smoothing|")
