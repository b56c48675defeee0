"""All of a run on the terminal, for `edgekit run -v` and `edgekit status --all`: every variant, and every note."""

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
from edgekit.report.formatting import faster_with_ends
from edgekit.report.sections import decisions, devices, loads, variants
from edgekit.report.tables import Column

ANY_WIDTH = 10_000
VERDICT_WIDTH = 24
"""Characters more than its longest word that a verdict should have."""


def show(result: Result, folder: Path, console: Console, *, drawn: bool = False) -> None:
    """Print the verdict table, the wall times and the paths of all outputs."""
    console.print(_table(result, console))
    console.print()
    if result["verdict"]["met"]:
        winner, _, figures = escape(verdict.message(result)).partition(" ")
        console.print(f"[bold]{winner}[/bold] {figures}")
    else:
        console.print(f"[bold]{escape(verdict.message(result))}[/bold]", soft_wrap=True)
    if result["waterfall"]:
        console.print(f"Step by step: {_steps_text(result['waterfall'])}.", soft_wrap=True, highlight=False)
    for target, why in verdict.unmet(result):
        console.print(f"[bold]No bundle for {target}:[/bold] {escape(why)}", soft_wrap=True)
    for line in verdict.lost(result):
        console.print(f"[bold]Could not be made:[/bold] {escape(line)}.", soft_wrap=True, highlight=False)
    others = filter(None, map(variants.rival_sentence, result["rivals"]))
    for line in [*others, *decisions.ties(result), *loads.sentences(result), *_seen(result)]:
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
    for line in verdict.paths(result, folder, drawn=drawn):
        console.print(line, soft_wrap=True, highlight=False, markup=False)


def _table(result: Result, console: Console) -> Table:
    """The table of variants; a second accuracy stands in it where the terminal is wide enough."""
    found = variants.of_result(result)
    plain = _laid_out(result, found, found.plain_figures)
    if not found.second:
        return plain
    whole = _laid_out(result, found, (*found.plain_figures, *found.second))
    needed = Measurement.get(console, console.options.update(max_width=ANY_WIDTH), whole).minimum
    return whole if needed + VERDICT_WIDTH <= console.width else plain


def _laid_out(result: Result, found: variants.Variants, figures: Sequence[Column[variants.VariantLine]]) -> Table:
    title = f"Verdict of run {result['name']}"
    table = Table(title=title, title_justify="left", title_style="bold", caption=found.caption, caption_justify="left")
    columns = (variants.NAME, *figures, variants.VERDICT)
    for column in columns:
        # a second accuracy's name is longer than its figures, and so is a device's
        heading = column.heading.replace(" ", "\n") if column in found.second else column.heading.replace("ms ", "ms\n")
        justify: Literal["left", "right"] = "right" if column.numeric else "left"
        table.add_column(heading, justify=justify, no_wrap=column is not variants.VERDICT)
    for line in found.lines:
        ships = line.standing == "ships"
        table.add_row(*(escape(column.text(line)) for column in columns), style="bold green" if ships else None)
    return table


def _seen(result: Result) -> list[str]:
    """One line for each model that seems to know validation."""
    tested = checks.tested_for_validation(result)
    return [f"Validation: {checks.seen_message(found)}." for found in tested if found["known"]]


def _steps_text(steps: list[WaterfallStep]) -> str:
    return " · ".join(
        f"{step['step']} {faster_with_ends(step, 'gain')}{'' if step['kept'] else ', not kept'}" for step in steps[1:]
    )
