"""What a call costs, and whether the run was worth it, as the page shows it."""

from __future__ import annotations

from typing import Any

from edgekit.core.schema.result import Result
from edgekit.report import costs
from edgekit.report.html.rows import grid_of
from edgekit.report.tables.costs import caption, columns


def build_section(result: Result) -> dict[str, Any] | None:
    """`grid` and `lines`; None of an earlier edgekit, which measured no cost."""
    found = result.get("cost")
    if found is None:
        return None
    ships = set(result["winners"].values())
    grid = grid_of(caption(found), columns(found), found["calls"], lambda row: "ships" if row["name"] in ships else "")
    return {"grid": grid, "lines": costs.worth(found)}
