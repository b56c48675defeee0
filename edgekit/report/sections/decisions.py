"""Show the variants that won, the rules by which they won, and the steps that were tried and rejected."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from edgekit.core.artifacts import Artifact
from edgekit.core.schema.decisions import Decision, DecisionCandidate, is_winner_decision
from edgekit.core.schema.result import Result
from edgekit.report import rejected_steps as rejections
from edgekit.report.formatting import bound_note, count, milliseconds
from edgekit.report.tables import Grid, Table, build_table, grid, grid_from_columns
from edgekit.stages.benchmark.winners import FEWEST_BYTES, winner_of


def table(artifact: Artifact) -> Table:
    """Show each winner and its rule, beside all variants in the tie and the fastest variant that is not in it."""
    rows = [
        (
            decision["decision"] if place == 0 else "",
            row["name"],
            milliseconds(row["p50_ms"]),
            f"{row['ratio']:.2f}",
            f"{row['ratio_low']:.2f} to {row['ratio_high']:.2f}",
            count(row["bytes"]),
            _outcome(row, decision),
        )
        for decision in artifact.metrics["decisions"]
        for place, row in enumerate(_telling_candidates(decision))
    ]
    confidence, margin = artifact.config["confidence"], artifact.config["tie_margin"]
    title = (
        f"Slower: the whole {100 * confidence:g} % interval is above {1 + margin:g} times the fastest; otherwise a tie"
    )
    devices = artifact.metrics.get("devices")
    p50 = f"p50, ms on {devices['slowest'] or devices['where']}" if devices else "p50, ms"
    return Table(("decision", "variant", p50, "× the fastest", "interval", "bytes", ""), rows, title)


def _telling_candidates(decision: Decision) -> list[DecisionCandidate]:
    """Return the candidates that show why the winner won, the nearest first."""
    candidates = decision["candidates"] if is_winner_decision(decision) else []
    beaten = [row["name"] for row in candidates if not row["in_the_tie"]][:1]
    return [row for row in candidates if row["in_the_tie"] or row["name"] in (*beaten, decision["chosen"])]


def _outcome(row: DecisionCandidate, decision: Decision) -> str:
    if row["name"] == decision["chosen"]:
        return f"wins: {decision['rule']}"
    if row["name"] == decision["today"]:
        return "would win by today’s measurement"
    return "in the tie" if row["in_the_tie"] else "slower"


def page_grid(result: Result) -> Grid:
    """Show every decision that is based on latencies."""
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


def _names(chosen: Any) -> str:
    return ", ".join(chosen) if isinstance(chosen, list) else str(chosen or "none")


def ties(result: Result) -> Iterator[str]:
    """Yield a line for each target whose winner was chosen by size, because the speeds did not differ."""
    by_name = {decision["decision"]: decision for decision in result["decisions"] if is_winner_decision(decision)}
    for target in result["winners"]:
        decision = by_name[winner_of(target)]
        if decision["rule"] != FEWEST_BYTES:
            continue
        chosen, others = decision["chosen"], decision["candidates"]
        own = next(row for row in others if row["name"] == chosen)
        fastest = next(row for row in others if row["ratio_low"] == row["ratio_high"] == 1.0)
        if fastest is own:
            tied = next(row for row in others if row["in_the_tie"] and row is not own)
            comparison = f"{tied['name']} is {_small_difference(tied, 'slower')}"
        else:
            comparison = f"{fastest['name']} is {_small_difference(own, 'faster')}"
        yield f"{target}: {chosen}, by fewer bytes: {comparison}"


def _small_difference(row: DecisionCandidate, word: str) -> str:
    measured = f"({row['ratio']:.2f}×, {row['ratio_low']:.2f}–{row['ratio_high']:.2f})"
    return f"not measurably {word} {measured}" if row["ratio_low"] <= 1 else f"{word} within the margin {measured}"


def rejected_table(artifact: Artifact) -> Table:
    """Show every step of the run that was tried and rejected, from its benchmark."""
    return build_table(
        rejections.COLUMNS,
        rejections.rejected_steps(artifact),
        bound_note(artifact.config["budget"]["accuracy_confidence"]),
    )


def rejected_grid(result: Result) -> Grid | None:
    """Show every step that was tried and rejected."""
    caption = (
        f"Measured and rejected, in the order of the pipeline. {bound_note(result['budget']['accuracy_confidence'])}"
    )
    return grid_from_columns(caption, rejections.COLUMNS, result["rejected"]) if result["rejected"] else None
