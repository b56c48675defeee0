"""Tables of every variant and every rejected step, each with its reason."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from edgekit.report.formatting import count, milliseconds, percent, points, span, speedup, times
from edgekit.report.html.rows import Grid, Line, Row, grid, ratio
from edgekit.stages.benchmark.decide import FEWEST_BYTES

FIGURES = "val.|test|drop, pp|at most, pp|bytes|p50, ms|p95, ms|p99, ms|speed-up"


IN_ORDER = ("", "ships", "inside", "out")


def table(result: Row) -> Grid:
    """The baseline, then what ships, what is inside the budget, what is not; of each the fastest first."""
    baseline, *variants = result["variants"]
    columns = ("variant", "verdict", *FIGURES.split("|"))
    lines = [
        _line(row, row is baseline, result) for row in [baseline, *sorted(variants, key=lambda row: row["p50_ms"])]
    ]
    lines.sort(key=lambda line: IN_ORDER.index(line.kind))
    caption = "Accuracy, latency of one call, and speed-up over the baseline; – where its interval holds 1"
    return Grid(caption, columns, lines, frozenset(FIGURES.split("|")), frozenset({"verdict"}))


def _line(row: Row, is_baseline: bool, result: Row) -> Line:
    kind, verdict, reason = ("", "before", "") if is_baseline else _status(row, result)
    cells = [
        row["name"],
        f"{verdict}: {reason}" if reason else verdict,
        percent(row["accuracy_validation"]),
        percent(row["accuracy_test"]),
        points(row.get("drop_pp", 0.0)),
        points(row.get("bound_pp")),
        count(row["bytes"]),
        *(milliseconds(row[f"p{rank}_ms"]) for rank in (50, 95, 99)),
        "1×" if is_baseline else speedup(row["speedup"], row["speedup_low"], row["speedup_high"]),
    ]
    return Line(cells, kind)


def _status(row: Row, result: Row) -> tuple[str, str, str]:
    """Kind, verdict and reason of a variant."""
    choice = next((one for one in result["decisions"] if one["decision"] == f"winner of {row['target']}"), None)
    beside = next((one for one in choice["candidates"] if one["name"] == row["name"]), None) if choice else None
    if row["name"] in result["winners"].values():
        rule = choice["rule"] if choice else ""
        return "ships", f"ships for {row['target']}", rule.replace("tie:", "tie, won by")
    if not row["inside_budget"]:
        return "out", "rejected", "; ".join(row["reasons"])
    if beside is None:
        return "inside", "inside the budget", ""
    lost = "one with fewer bytes" if choice and choice["rule"] == FEWEST_BYTES else "one of the same bytes"
    if beside["ratio_low"] == beside["ratio_high"] == 1.0:
        return "inside", "inside the budget", f"the fastest, but in a tie with {lost}"
    interval = f"{times(beside['ratio'])} ({span(beside['ratio_low'], beside['ratio_high'])}) the time of the fastest"
    if not beside["in_the_tie"]:
        return "inside", "inside the budget", f"slower, {interval}"
    return "inside", "inside the budget", f"in a tie with {lost}, {interval}"


def rejected(result: Row) -> Grid | None:
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


def rivals(result: Row) -> Grid | None:
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


def decisions(result: Row) -> Grid:
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


def percentiles(result: Row, names: Sequence[str]) -> Grid:
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
