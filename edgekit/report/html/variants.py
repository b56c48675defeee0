"""Tables of every variant and every rejected step, each with its reason."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from edgekit.report import variants
from edgekit.report.formatting import count, milliseconds, percent, points, times
from edgekit.report.html.rows import Grid, Line, grid, ratio
from edgekit.report.result.types import Result

KINDS = {"baseline": "", "ships": "ships", "inside": "inside", "out": "out"}
"""Classes of the style sheet, by how a variant ended."""


def table(result: Result) -> Grid:
    """Every variant; the verdict stands beside the name, for the table is wider than a phone."""
    found = variants.of_result(result)
    columns = (variants.NAME, variants.VERDICT, *variants.FIGURES)
    lines = [Line([column.text(line) for column in columns], KINDS[line.standing]) for line in found.lines]
    numeric = frozenset(column.heading for column in variants.FIGURES)
    headings = [column.heading for column in columns]
    return Grid(found.caption, headings, lines, numeric, frozenset({variants.VERDICT.heading}))


def rejected(result: Result) -> Grid | None:
    """What was tried on the way and not kept."""
    rows = [
        (
            row["stage"],
            row["what"],
            percent(row["accuracy_validation"]),
            points(row["drop_pp"]),
            points(row["bound_pp"]),
            row["reason"],
        )
        for row in result["rejected"]
    ]
    columns = ("stage", "what", "accuracy", "drop, pp", "at most, pp", "reason")
    caption = "Tried and not kept, in the order of the pipeline; accuracy on validation"
    return grid(caption, columns, rows, "accuracy|drop, pp|at most, pp", "what|reason") if rows else None


def rivals(result: Result) -> Grid | None:
    """Files made by others, held against the winner."""
    rows = [
        (
            row["name"],
            percent(row["accuracy_test"]),
            count(row["bytes"]),
            milliseconds(row["p50_ms"]),
            milliseconds(row["p95_ms"]),
            points(row["winner_gain_pp"]),
            times(row["winner_bytes_share"]),
            ratio(row, "winner_speedup"),
        )
        for row in result["rivals"]
    ]
    columns = (
        "rival", "test", "bytes", "p50, ms", "p95, ms", "winner’s test, pp", "winner’s bytes", "winner’s speed",
    )  # fmt: skip
    return grid("Files made by others, in the same rounds", columns, rows, "|".join(columns[1:])) if rows else None


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
    return grid("Decisions that rest on a latency", columns, rows, "candidates", "chosen|rule")


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
