"""Tables of every variant and every rejected step, each with its reason."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from edgekit.core.schema.result import Result
from edgekit.report import rejected as rejections
from edgekit.report import rivals as others
from edgekit.report import variants
from edgekit.report.formatting import at_most, count, milliseconds, times
from edgekit.report.html.rows import Grid, grid, grid_of

KINDS = {"baseline": "", "ships": "ships", "inside": "inside", "out": "out"}
"""Classes of the style sheet, by how a variant ended."""


def table(result: Result) -> Grid:
    """Every variant; the verdict stands beside the name, for the table is wider than a phone."""
    found = variants.of_result(result)
    columns = (variants.NAME, variants.VERDICT, *found.figures)
    return grid_of(found.caption, columns, found.lines, lambda line: KINDS[line.standing])


def rejected(result: Result) -> Grid | None:
    """What was tried on the way and not kept."""
    caption = f"Tried and not kept, in the order of the pipeline. {at_most(result['budget']['accuracy_confidence'])}"
    return grid_of(caption, rejections.COLUMNS, result["rejected"]) if result["rejected"] else None


def rivals(result: Result) -> Grid | None:
    """Files made by others, compared with the winner."""
    caption = "Files made by others, in the same rounds"
    return grid_of(caption, others.COLUMNS, result["rivals"]) if result["rivals"] else None


def decisions(result: Result) -> Grid:
    """Every decision that rests on a latency."""
    other = any(row["today"] != row["chosen"] for row in result["decisions"])
    rows = [
        (
            row["decision"],
            _names(row["chosen"]),
            row["rule"],
            str(len(row["candidates"])),
            *([_names(row["today"])] if other else []),
        )
        for row in result["decisions"]
    ]
    columns = ("decision", "chosen", "rule", "candidates", *(["today’s measurement alone"] if other else []))
    where = f", measured on {devices['where']}" if (devices := result.get("devices")) else ""
    return grid(f"Decisions that rest on a latency{where}", columns, rows, "candidates", "chosen|rule")


def percentiles(result: Result, names: Sequence[str]) -> Grid:
    """The figures behind the curves."""
    rows = {row["name"]: row for row in [*result["variants"], *result["rivals"]]}
    columns = ("variant", "p50, ms", "p90, ms", "p95, ms", "p99, ms", "mean, ms", "p99 over p50", "calls")
    lines = [
        (
            name,
            *(milliseconds(rows[name][key]) for key in ("p50_ms", "p90_ms", "p95_ms", "p99_ms", "mean_ms")),
            times(rows[name]["p99_ms"] / rows[name]["p50_ms"]),
            count(rows[name]["calls"]),
        )
        for name in names
    ]
    return grid("Percentiles of the same calls", columns, lines, "|".join(columns[1:]))


def _names(chosen: Any) -> str:
    return ", ".join(chosen) if isinstance(chosen, list) else str(chosen or "none")
