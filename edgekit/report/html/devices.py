"""The devices whose latencies decided, as the page shows them."""

from __future__ import annotations

from edgekit.core.schema.result import Result
from edgekit.report.html.rows import Grid, grid
from edgekit.report.tables.devices import columns, rows, said_of


def build_grid(result: Result) -> Grid | None:
    """Every variant that was timed there; None where this machine decided."""
    found = result.get("devices")
    if found is None:
        return None
    said, named = said_of(found, result["decisions"]), columns(found)
    return grid(f"{said[0].upper()}{said[1:]}", named, rows(found, result["variants"]), "|".join(named[1:]))
