"""Print everything about a run, for `edgekit run -v` and `edgekit status --all`: every variant and every note."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table

from edgekit.core.config import STAGES
from edgekit.core.schema.result import Result
from edgekit.core.schema.variants import WaterfallStep
from edgekit.report import checks, costs, verdict
from edgekit.report.formatting import faster_with_bounds
from edgekit.report.sections import branches, decisions, devices, loads, variants
from edgekit.report.tables import Column

ANY_WIDTH = 10_000
VERDICT_WIDTH = 24
"""Columns of a second accuracy metric and of intervals are shown only if the verdict column stays at least this many
characters wider than its longest word."""


def print_run(result: Result, folder: Path, console: Console, *, has_report: bool = False) -> None:
    """Print the verdict table, the time of each stage, and the paths of all outputs."""
    console.print(_table(result, console))
    console.print()
    if result["verdict"]["met"]:
        winner, _, figures = escape(verdict.verdict_message(result)).partition(" ")
        console.print(f"[bold]{winner}[/bold] {figures}")
    else:
        console.print(f"[bold]{escape(verdict.verdict_message(result))}[/bold]", soft_wrap=True)
    if result["waterfall"]:
        console.print(f"Step by step: {_steps_text(result['waterfall'])}.", soft_wrap=True, highlight=False)
    for target, why in verdict.unmet_targets(result):
        console.print(f"[bold]No bundle for {target}:[/bold] {escape(why)}", soft_wrap=True)
    for line in verdict.left_out_lines(result):
        console.print(f"[bold]Could not be made:[/bold] {escape(line)}.", soft_wrap=True, highlight=False)
    for line in branches.sentences(result.get("branches", [])):
        console.print(escape(line), soft_wrap=True, highlight=False)
    others = filter(None, map(variants.reference_sentence, result["rivals"]))
    for line in [*others, *decisions.ties(result), *loads.sentences(result), *_leakage_lines(result)]:
        console.print(line, soft_wrap=True, highlight=False)
    if "devices" in result:
        decided = escape(devices.sentence(result["devices"], result["decisions"]))
        console.print(f"[bold]Decided by[/bold] {decided}.", soft_wrap=True, highlight=False)
    conditions = result["conditions"]
    console.print(
        f"[dim]Measured on {conditions['cpu']}, {conditions['cores']} cores, Python {conditions['python']}, "
        f"{conditions['threads']} thread; {conditions['protocol']}.[/dim]",
    )
    if conditions["disturbed"]:
        where = " on this machine" if "devices" in result else ""
        console.print(
            f"[bold]Noisy measurement{where}:[/bold] {'; '.join(conditions['disturbed'])}.",
            soft_wrap=True,
            highlight=False,
        )
    for line in conditions["stayed_open"]:
        console.print(f"[bold]Not settled:[/bold] {escape(line)}.", soft_wrap=True, highlight=False)
    for line in costs.worth(result["cost"]):
        console.print(escape(line), soft_wrap=True, highlight=False)
    done = [stage for stage in STAGES if stage in result["stages"]]
    took = " · ".join(f"{stage} {result['stages'][stage]['seconds']:.0f} s" for stage in done)
    console.print(f"\nStages     {took}", soft_wrap=True, highlight=False)
    for line in verdict.output_paths(result, folder, has_report=has_report):
        console.print(line, soft_wrap=True, highlight=False, markup=False)


def _table(result: Result, console: Console) -> Table:
    """Return the table of variants, with a second accuracy metric and with intervals if the terminal is wide enough."""
    table = variants.variants_of_result(result)
    for optional in ((*table.intervals, *table.second), table.second):
        full_table = _build_table(result, table, (*table.plain_figures, *optional))
        needed_width = Measurement.get(console, console.options.update(max_width=ANY_WIDTH), full_table).minimum
        if optional and needed_width + VERDICT_WIDTH <= console.width:
            return full_table
    return _build_table(result, table, table.plain_figures)


def _build_table(
    result: Result, variants_table: variants.Variants, figures: Sequence[Column[variants.VariantLine]]
) -> Table:
    title = f"Verdict of run {result['name']}"
    table = Table(
        title=title, title_justify="left", title_style="bold", caption=variants_table.caption, caption_justify="left"
    )
    columns = (variants.NAME, *figures, variants.VERDICT)
    for column in columns:
        # These headings are split into two lines, because the names of a second accuracy and of a device are longer
        # than the figures below them.
        heading = (
            column.heading.replace(" ", "\n")
            if column in variants_table.second
            else column.heading.replace("ms ", "ms\n")
        )
        justify: Literal["left", "right"] = "right" if column.numeric else "left"
        table.add_column(heading, justify=justify, no_wrap=column is not variants.VERDICT)
    for line in variants_table.lines:
        ships = line.standing == "ships"
        table.add_row(*(escape(column.text(line)) for column in columns), style="bold green" if ships else None)
    return table


def _leakage_lines(result: Result) -> list[str]:
    """Return one line for each model that seems to have seen validation samples in training."""
    rows = checks.leakage_rows(result)
    return [f"Validation: {checks.leakage_message(row)}." for row in rows if row["known"]]


def _steps_text(steps: list[WaterfallStep]) -> str:
    return " · ".join(
        f"{step['step']} {faster_with_bounds(step, 'gain')}{'' if step['kept'] else ', rejected'}" for step in steps[1:]
    )
