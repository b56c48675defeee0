"""`search.html`: one page about a study. It is built from study.json alone, and loads nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from matplotlib.figure import Figure

from edgekit import __version__
from edgekit.core.hashing import sha256_file
from edgekit.report.figures import Picture, picture
from edgekit.report.html.source_digest import digest_with_code, stored_digest
from edgekit.report.html.templates import render
from edgekit.report.search import figures, importances, recommend, tables, words
from edgekit.report.search.importances import Importances
from edgekit.report.search.studies import Study, read, value_text
from edgekit.runner.files import write_atomically

PAGE = "search.html"
END = "</html>\n"
CAPTIONS = {
    "front": "Up and to the left is better, or down and to the left. A trial is on the front because of all "
    "objectives together, so it may lie behind others in one panel. Lines are confidence intervals; a trial whose "
    "interval reaches into the grey does not meet the budget significantly.",
    "importances": "By functional ANOVA over the complete trials. Options that act together can explain more than the "
    "sum of their shares. A sampler that stays near good trials tries few poor values of an option, so the option "
    "looks less important than it is.",
    "parallel": "Each line is a trial. ↑: higher is better, ↓: lower is better. A line passes below the axes of "
    "options that the trial does not have, and it ends before the objectives if the trial was not completed.",
    "growth": "The hypervolume of the front, as a share of its last value. A long flat end means that more trials add "
    "little.",
    "cost": "Left: the number of trials that reached each fidelity, and their outcomes. Right: the work of the trials "
    "that ended at each fidelity.",
}


def write_page(path: Path) -> Path:
    """Write the page beside a study's file, unless it is current. Raises `DataError` if the study is invalid."""
    study = read(path)
    page = study.path.parent / PAGE
    if not is_page_current(study.path):
        write_atomically(page, render_page(study).encode())
    return page


def try_write_page(path: Path, print_line: Callable[[str], None]) -> bool:
    """Like `write_page`, but pass an error to `print_line` and do not raise it, because the study is valid anyway."""
    try:
        write_page(path)
        return True
    except Exception as error:
        print_line(f"{PAGE} could not be written ({type(error).__name__}: {error}). The study is complete: {path}")
        return False


def is_page_current(path: Path) -> bool:
    """Return whether the page is complete and belongs to the current file of the study."""
    try:
        text = (path.parent / PAGE).read_text(encoding="utf-8")
        return text.endswith(END) and stored_digest(text) == digest_with_code([path])
    except (OSError, ValueError):
        return False


def render_page(study: Study) -> str:
    """Return the page as text. The same study and code always give the same bytes."""
    return render("search.html.j2", **build_context(study))


def build_context(study: Study) -> dict[str, Any]:
    """Return the values for `search.html.j2`."""
    importance_rows, points = importances.of(study), recommend.points(study)
    return {
        "study": {"name": study.row["name"], "front": bool(study.front)},
        "edgekit": __version__,
        "sign": digest_with_code([study.path]),
        "headline": words.headline(study),
        "lead": " ".join(filter(None, (words.trials(study), words.budget(study), words.ended(study)))),
        "facts": facts(study, points),
        "points": [_describe(study, point) for point in points],
        "missed": [line for line in (words.nearest(study), words.disturbed(study)) if line],
        "figures": pictures(study, importance_rows),
        "front": tables.front_grid(study),
        "unexplained": importance_rows.left_out,
        "cost": " ".join(filter(None, (words.cost(study), words.spared(study)))),
        "fidelities": tables.fidelities_grid(study),
        "work": tables.work_grid(study),
        "trials": tables.trials_grid(study),
        "about": tables.facts(study),
        "space": tables.space_grid(study),
        "baselines": tables.baselines_grid(study),
        "config": yaml.safe_dump(study.row["config"], sort_keys=False, allow_unicode=True),
        "file": study.path.name,
        "sha256": sha256_file(study.path),
        "digest": study.row["batches"][-1]["digest"] if study.row["batches"] else "of no batch",
    }


def facts(study: Study, points: list[recommend.Recommendation]) -> list[tuple[str, str, str]]:
    """Return the best value of each objective, and the trial that has it."""
    rows = []
    for point in points:
        for each in point.best_in:
            figure = each.shown(point.trial["values"][each.place])
            rows.append(
                (figure, each.best, f"trial {point.number}, {value_text(point.trial, each).partition(' (')[2]}")
            )
    return [(figure, what, beside.removesuffix(")").removesuffix(", ")) for figure, what, beside in rows]


def _describe(study: Study, point: recommend.Recommendation) -> dict[str, str]:
    first, *rest = recommend.sentences(study, point)
    title, _, figure = first.partition(". ")
    return {
        "first": f"{title}.",
        "rest": " ".join([figure, *rest]),
        "options": recommend.options(study, point.trial),
        "command": study.command(point.number),
    }


def pictures(study: Study, importance_rows: Importances) -> dict[str, Picture]:
    """Return the figures by name, without figures that have nothing to show."""
    drawn: dict[str, tuple[Figure | None, str]] = {
        "front": (figures.front(study), f"{len(study.complete)} complete trials by two objectives at a time"),
        "importances": (figures.importances(study, importance_rows), _largest(importance_rows)),
        "parallel": (figures.parallel(study, importance_rows), f"{len(study.trials)} trials through their options"),
        "growth": (figures.growth(study), f"Hypervolume of the front after {len(study.row['batches'])} batches"),
        "cost": (figures.cost(study), f"Trials and work by fidelity: {words.cost(study)}"),
    }
    return {name: picture(figure, alt, CAPTIONS[name]) for name, (figure, alt) in drawn.items() if figure is not None}


def _largest(importance_rows: Importances) -> str:
    first = dict.fromkeys(row.objective.title for row in importance_rows.rows)
    largest = [
        max((row for row in importance_rows.rows if row.objective.title == title), key=lambda row: row.share)
        for title in first
    ]
    return "; ".join(f"{row.objective.title}: {row.key} {row.share:.0%}" for row in largest)
