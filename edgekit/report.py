"""The verdict of a run, read from its sealed artifacts: `result.json` and the table at the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from edgekit import __version__, checks
from edgekit import artifact as artifacts
from edgekit.config import STAGES
from edgekit.plan import Plan
from edgekit.tables import count, milliseconds, percent, points, times
from edgekit.workbook import stage_folder

RESULT = "result.json"


def write_result(plan: Plan, folder: Path, seconds: dict[str, float]) -> dict[str, Any]:
    """Write result.json for as far as the run came; returns it.

    Needs a finished benchmark; the bundles are there when the budget was met. `seconds` are wall times by stage.
    """
    benchmark = artifacts.load(stage_folder(folder, "benchmark"))
    verdict = benchmark.metrics["verdict"]
    bundle = artifacts.load(stage_folder(folder, "bundle")) if verdict["met"] else None
    last = bundle or benchmark
    chain = [last.ancestor(stage) for stage in ("origin", *STAGES[: STAGES.index(last.stage) + 1])]
    result = {
        "format": 1,
        "edgekit": __version__,
        "name": plan.run.name,
        "version": plan.run.version,
        "config": plan.given,
        "data_digest": benchmark.data_digest,
        "budget": plan.run.budget.model_dump(),
        "verdict": verdict,
        "nearest_miss": benchmark.metrics["nearest_miss"],
        "unmet": benchmark.metrics["unmet"],
        "winners": benchmark.metrics["winners"],
        "variants": benchmark.metrics["rows"],
        "waterfall": benchmark.metrics["waterfall"],
        "conditions": benchmark.metrics["conditions"],
        "stages": {
            found.stage: {"digest": found.digest, "key": found.key, "seconds": seconds.get(found.stage)}
            for found in chain
        },
        "bundles": bundle.metrics["bundles"] if bundle else {},
    }
    artifacts.write_json(folder / RESULT, result)
    return result


def show(result: dict[str, Any], folder: Path, console: Console) -> None:
    """Print the verdict table, the wall times and where everything lies."""
    console.print(_table(result))
    verdict = result["verdict"]
    console.print()
    if verdict["met"]:
        console.print(
            f"[bold]{verdict['winner']}[/bold] wins: p50 {milliseconds(verdict['p50_ms'])} ms, "
            f"{times(verdict['speedup_vs_eager'])} PyTorch eager, "
            f"{_against_quantized_baseline(verdict)}; "
            f"drop {points(verdict['drop_validation_pp'])} pp on validation, "
            f"{points(verdict['drop_test_pp'])} pp on test."
        )
    else:
        console.print(f"[bold]{checks.missed_message(result['nearest_miss'])}[/bold]", soft_wrap=True)
    if result["waterfall"]:
        console.print(f"Step by step: {_walk(result['waterfall'])}.", soft_wrap=True, highlight=False)
        for target, nearest in result["unmet"].items():
            console.print(f"[bold]No bundle for {target}:[/bold] {checks.missed_message(nearest)}.", soft_wrap=True)
    conditions = result["conditions"]
    console.print(
        f"[dim]Measured on {conditions['cpu']}, {conditions['cores']} cores, Python {conditions['python']}, "
        f"{conditions['threads']} thread; {conditions['protocol']}.[/dim]",
    )
    took = " · ".join(
        f"{name} {stage['seconds']:.0f} s" for name, stage in result["stages"].items() if stage["seconds"]
    )
    console.print(f"\nStages     {took}", soft_wrap=True, highlight=False)
    for entry in result["bundles"].values():
        console.print(f"Bundle     {stage_folder(folder, 'bundle') / entry['file']}", soft_wrap=True, highlight=False)
    if result["bundles"]:
        console.print(f"Runner     {stage_folder(folder, 'bundle') / 'edgerun.pyz'}", soft_wrap=True, highlight=False)
    for number, stage in enumerate((name for name in result["stages"] if name in STAGES), 1):
        path = folder / "notebooks" / f"{number:02d}_{stage}.ipynb"
        failed = path.with_suffix(".failed.ipynb")  # a copy of an earlier, successful run may stand beside it
        console.print(f"Notebook   {failed if failed.exists() else path}", soft_wrap=True, highlight=False)
    if not result["bundles"] and stage_folder(folder, "bundle").exists():
        console.print(f"The bundles in {stage_folder(folder, 'bundle')} are from an earlier run.", soft_wrap=True)
    console.print(f"Result     {folder / RESULT}", soft_wrap=True, highlight=False)


def _table(result: dict[str, Any]) -> Table:
    table = Table(title=f"Verdict of run {result['name']}", title_justify="left", title_style="bold")
    for heading, justify in (
        ("variant", "left"),
        ("val.", "right"),
        ("test", "right"),
        ("drop pp", "right"),
        ("bytes", "right"),
        ("p50 ms", "right"),
        ("p95 ms", "right"),
        ("p99 ms", "right"),
        ("speed-up", "right"),
        ("", "left"),
    ):
        table.add_column(heading, justify=justify, no_wrap=heading != "")  # type: ignore[arg-type]
    baseline, *variants = result["variants"]
    winners = set(result["winners"].values())
    for row in [baseline, *sorted(variants, key=lambda row: row["p50_ms"])]:
        table.add_row(
            row["name"],
            percent(row["accuracy_validation"]),
            percent(row["accuracy_test"]),
            points(row.get("drop_pp", 0.0)),
            count(row["bytes"]),
            milliseconds(row["p50_ms"]),
            milliseconds(row["p95_ms"]),
            milliseconds(row["p99_ms"]),
            times(baseline["p50_ms"] / row["p50_ms"]),
            _note(row, winners),
            style="bold green" if row["name"] in winners else None,
        )
    return table


def _against_quantized_baseline(verdict: dict[str, Any]) -> str:
    ratio = verdict["speedup_vs_post_training_baseline"]
    if ratio is None:
        return "no post-training-quantized baseline was converted to compare with"
    return f"{times(ratio)} the best post-training-quantized baseline"


def _walk(steps: list[dict[str, Any]]) -> str:
    told = (f"{step['step']} {times(step['gain'])}{'' if step['kept'] else ' (not kept)'}" for step in steps[1:])
    return " · ".join(told)


def _note(row: dict[str, Any], winners: set[str]) -> str:
    if row["name"] in winners:
        return f"wins {row['target']}"
    if row["target"] == "pytorch":
        return "baseline"
    return "; ".join(row["reasons"])
