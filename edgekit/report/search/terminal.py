"""Show a study on the terminal: the end of a search in a few lines or, with `-v`, everything."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from edgekit.report.search import recommend, words
from edgekit.report.search.page import PAGE
from edgekit.report.search.studies import Study, value_text

MAX_ROWS = 20
SUMMARY_ROWS = 8
"""Number of rows of the front in a summary. They include the recommended trials."""


def print_summary(study: Study, console: Console, digest: str) -> None:
    """Print the end of a search: the best trials, what to know about them, and the command that writes a config.

    Parameters
    ----------
    digest
        The digest of the last batch, by which studies can be compared.
    """
    console.print(f" [bold]{escape(words.headline(study))}.[/bold] {escape(words.trials(study))}", soft_wrap=True,
                  highlight=False)  # fmt: skip
    points = recommend.points(study)
    if study.front:
        console.print()
        console.print(_short_table(study))
        console.print()
    close = [line for point in points for line in recommend.close_sentences(point)]
    for line in (words.nearest(study), words.disturbed(study), *close):
        if line:
            console.print(f" {line}", soft_wrap=True, highlight=False, markup=False)
    page = study.path.with_name(PAGE)
    lines = [("Study", f"{study.path}, digest {digest}"), *([("Page", str(page))] if page.is_file() else [])]
    lines += [("Next" if number == 0 else "or", f"{study.command(point.number)}  ({point.title.lower()})")
              for number, point in enumerate(points)]  # fmt: skip
    console.print()
    for label, text in lines:
        console.print(f" {label:<9}{text}", soft_wrap=True, highlight=False, markup=False)


def _short_table(study: Study) -> Table:
    """Show the front without intervals and options, the recommended trials first."""
    points = {point.number: point.title for point in recommend.points(study)}
    first = sorted(study.front, key=lambda trial: trial["number"] not in points)
    rows = [trial for trial in study.front if trial in first[:SUMMARY_ROWS]]
    rest = len(study.front) - len(rows)
    table = Table(box=None, padding=(0, 1), header_style="dim", caption_justify="left",
                  caption=f"and {rest} more, in the page" if rest else None)  # fmt: skip
    table.add_column("trial", justify="right")
    table.add_column("")
    for each in study.objectives:
        table.add_column(escape(each.title), justify="right", no_wrap=True)
    for trial in rows:
        title = points.get(trial["number"], "").lower()
        cells = [value_text(trial, each).partition(" (")[0] for each in study.objectives]
        table.add_row(str(trial["number"]), title, *map(escape, cells), style="bold" if title else None)
    return table


def print_study(study: Study, console: Console) -> None:
    """Print the front with all options and intervals, and every sentence about the study."""
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
    sentences = (
        words.budget(study),
        words.nearest(study),
        words.disturbed(study),
        words.proposed(study),
        f"{words.cost(study)} {words.spared(study)}".strip(),
        words.ended(study),
    )
    yield from filter(None, sentences)


def _table(study: Study) -> Table:
    chosen = {point.number: point.title for point in recommend.points(study)}
    rest = len(study.front) - MAX_ROWS
    caption = f"and {rest} more, in the page" if rest > 0 else None
    table = Table(title=f"Front of study {escape(study.row['name'])}", title_justify="left", title_style="bold",
                  caption=caption, caption_justify="left")  # fmt: skip
    table.add_column("trial", justify="right", no_wrap=True)
    table.add_column("")
    for each in study.objectives:
        table.add_column(each.title, justify="right")
    table.add_column("options", overflow="fold")
    for trial in study.front[:MAX_ROWS] if rest > 0 else study.front:
        title = chosen.get(trial["number"], "")
        cells = [str(trial["number"]), title, *(value_text(trial, each) for each in study.objectives)]
        table.add_row(*map(escape, (*cells, recommend.options(study, trial))), style="bold green" if title else None)
    return table
