"""The accuracy of what ships, class by class."""

from __future__ import annotations

from typing import Any

from edgekit.core.artifacts import Artifact
from edgekit.core.schema.by_class import ByClass
from edgekit.core.schema.result import Result
from edgekit.report.formatting import count
from edgekit.report.html.rows import Grid, grid
from edgekit.report.tables.by_class import lost_in_words, said_of, scores


def build_section(result: Result, benchmark: Artifact) -> dict[str, Any]:
    """A table, and a sentence about what was lost."""
    return {"grid": _grid(result["by_class"]), "text": lost_in_words(benchmark)}


def _grid(found: ByClass) -> Grid:
    rows = [(row["name"], count(row["samples"]), *scores(row, found)) for row in found["groups"]]
    said = said_of(found)
    columns = (found["group"], "samples", *found["variants"])
    return grid(f"{said[0].upper()}{said[1:]}", columns, rows, "|".join(columns[1:]))
