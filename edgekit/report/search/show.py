"""A study on the terminal: its front, the points to take, and where its page lies."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from edgekit.report.search import recommend, words
from edgekit.report.search.studies import Study, shown

MOST_ROWS = 20


def show(study: Study, console: Console) -> None:
    """The table of the front and lines around it: what a search says at its end."""
    if study.front:
        console.print(_table(study))
    console.print(f"[bold]{escape(words.headline(study))}.[/bold] {escape(words.trials(study))}", soft_wrap=True,
                  highlight=False)  # fmt: skip
    for line in _lines(study):
        console.print(line, soft_wrap=True, highlight=False, markup=False)
    for point in recommend.points(study):
        title, _, rest = " ".join(recommend.sentences(study, point)).partition(". ")
        console.print(f"[bold]{escape(title)}.[/bold] {escape(rest)}", soft_wrap=True, highlight=False)
        console.print(f"  {study.command(point.number)}", soft_wrap=True, highlight=False, markup=False)


def _lines(study: Study) -> Iterator[str]:
    said = (
        words.budget(study),
        words.nearest(study),
        words.disturbed(study),
        words.proposed(study),
        f"{words.cost(study)} {words.spared(study)}".strip(),
        words.ended(study),
    )
    yield from filter(None, said)


def _table(study: Study) -> Table:
    chosen = {point.number: point.title for point in recommend.points(study)}
    rest = len(study.front) - MOST_ROWS
    caption = f"and {rest} more, in the page" if rest > 0 else None
    table = Table(title=f"Front of study {escape(study.row['name'])}", title_justify="left", title_style="bold",
                  caption=caption, caption_justify="left")  # fmt: skip
    table.add_column("trial", justify="right", no_wrap=True)
    table.add_column("")
    for each in study.objectives:
        table.add_column(each.title, justify="right")
    table.add_column("options", overflow="fold")
    for trial in study.front[:MOST_ROWS] if rest > 0 else study.front:
        title = chosen.get(trial["number"], "")
        cells = [str(trial["number"]), title, *(shown(trial, each) for each in study.objectives)]
        table.add_row(*map(escape, (*cells, recommend.options(study, trial))), style="bold green" if title else None)
    return table
