"""The verdict of a run on the terminal: the table of its variants, and lines around it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table

from edgekit.core.config import STAGES
from edgekit.core.schema.decisions import Candidate, is_choice
from edgekit.core.schema.result import Result
from edgekit.core.schema.variants import WaterfallStep
from edgekit.report import checks, costs, rivals, variants, verdict
from edgekit.report.columns import Column
from edgekit.report.formatting import faster_with_ends
from edgekit.report.tables.devices import said_of
from edgekit.report.tables.loads import held, nothing_driven
from edgekit.stages.benchmark.winners import FEWEST_BYTES

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
        console.print(f"[bold]Left out:[/bold] {escape(line)}.", soft_wrap=True, highlight=False)
    others = filter(None, map(rivals.sentence, result["rivals"]))
    for line in [*others, *_ties(result), *_under_load(result), *_seen(result)]:
        console.print(line, soft_wrap=True, highlight=False)
    if "devices" in result:
        decided = escape(said_of(result["devices"], result["decisions"]))
        console.print(f"[bold]Decided by[/bold] {decided}.", soft_wrap=True, highlight=False)
    conditions = result["conditions"]
    console.print(
        f"[dim]Measured on {conditions['cpu']}, {conditions['cores']} cores, Python {conditions['python']}, "
        f"{conditions['threads']} thread; {conditions['protocol']}.[/dim]",
    )
    if conditions["disturbed"]:
        where = " on this machine" if "devices" in result else ""
        console.print(
            f"[bold]Disturbed{where}:[/bold] {'; '.join(conditions['disturbed'])}.", soft_wrap=True, highlight=False
        )
    for line in conditions.get("stayed_open", []):  # a result of an earlier edgekit has none
        console.print(f"[bold]Stayed open:[/bold] {escape(line)}.", soft_wrap=True, highlight=False)
    if "cost" in result:
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


def _laid_out(result: Result, found: variants.Variants, figures: Sequence[Column[variants.Line]]) -> Table:
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


def _under_load(result: Result) -> list[str]:
    """The highest rates held under load, and one line for each failure."""
    loads = result["loads"]
    rates = ", ".join(f"{row['name']} {held(row)}" for row in loads["rates"])
    lines = [f"Poisson arrivals held with a p99 within {loads['p99_bound_ms']:g} ms: {rates}"] if rates else []
    lines += [f"Load test failed: {row['name']}, {row['reason']}" for row in loads["failed"]]
    return [*lines, f"Load test: {nothing_driven(loads)}"] if loads.get("skipped") else lines


def _seen(result: Result) -> list[str]:
    """One line for each model that seems to know validation."""
    tested = checks.tested_for_validation(result)
    return [f"Validation: {checks.seen_message(found)}." for found in tested if found["known"]]


def _steps_text(steps: list[WaterfallStep]) -> str:
    return " · ".join(
        f"{step['step']} {faster_with_ends(step, 'gain')}{'' if step['kept'] else ', not kept'}" for step in steps[1:]
    )


def _ties(result: Result) -> Iterator[str]:
    """One line for each target whose winner was chosen by its size, because the speeds did not differ."""
    found = {decision["decision"]: decision for decision in result["decisions"] if is_choice(decision)}
    for target in result["winners"]:
        decision = found[f"winner of {target}"]
        if decision["rule"] != FEWEST_BYTES:
            continue
        chosen, others = decision["chosen"], decision["candidates"]
        own = next(row for row in others if row["name"] == chosen)
        fastest = next(row for row in others if row["ratio_low"] == row["ratio_high"] == 1.0)
        if fastest is own:
            tied = next(row for row in others if row["in_the_tie"] and row is not own)
            comparison = f"{tied['name']} is {_by_how_little(tied, 'slower')}"
        else:
            comparison = f"{fastest['name']} is {_by_how_little(own, 'faster')}"
        yield f"{target}: {chosen}, by fewer bytes: {comparison}"


def _by_how_little(row: Candidate, word: str) -> str:
    measured = f"({row['ratio']:.2f}×, {row['ratio_low']:.2f}–{row['ratio_high']:.2f})"
    return f"not measurably {word} {measured}" if row["ratio_low"] <= 1 else f"{word} within the margin {measured}"
