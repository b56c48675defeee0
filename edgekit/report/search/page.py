"""`search.html`: one page about a study, drawn from study.json alone, with nothing in it that comes from elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from matplotlib.figure import Figure

from edgekit import __version__
from edgekit.core.hashing import sha256_file
from edgekit.report.figures import Picture, picture
from edgekit.report.html.render import render
from edgekit.report.html.sign import digest_with_code, sign_of
from edgekit.report.search import figures, importances, recommend, tables, words
from edgekit.report.search.importances import Importances
from edgekit.report.search.studies import Study, read, shown
from edgekit.runner.files import write_atomically

PAGE = "search.html"
END = "</html>\n"
CAPTIONS = {
    "front": "Up and to the left is better, or down and to the left. A trial is on the front because of all "
    "objectives together, so it may lie behind others in one panel. Lines are confidence intervals; a trial whose "
    "interval reaches into the grey does not meet the budget significantly.",
    "importances": "By functional ANOVA over the complete trials. Options that act together explain more than their "
    "sum. A sampler that stays near good trials tries fewer of the poor values, so these options look less important.",
    "parallel": "Each line is a trial. ↑: higher is better, ↓: lower is better. A line that passes below an axis "
    "has no such option, and one that ends before the objectives is of a trial that was not completed.",
    "growth": "The hypervolume of the front, as a share of its last value. A long flat end means that more trials add "
    "little.",
    "cost": "Left: how many trials reached each fidelity, and what became of them. Right: where the work went.",
}


def write(path: Path) -> Path:
    """Draw the page beside a study's file if what is there is not current; DataError where there is no sound study."""
    study = read(path)
    page = study.path.parent / PAGE
    if not is_drawn(study.path):
        write_atomically(page, text(study).encode())
    return page


def draw(path: Path, say: Callable[[str], None]) -> bool:
    """`write` at the end of a search; an error is printed only, because the study stands without a page."""
    try:
        write(path)
        return True
    except Exception as error:
        say(f"{PAGE} could not be drawn ({type(error).__name__}: {error}); the study stands: {path}")
        return False


def is_drawn(path: Path) -> bool:
    """True where the page is whole and says what the study's file says now."""
    try:
        there = (path.parent / PAGE).read_text(encoding="utf-8")
        return there.endswith(END) and sign_of(there) == digest_with_code([path])
    except (OSError, ValueError):
        return False


def text(study: Study) -> str:
    """The page; the same bytes for the same study and the same code."""
    return render("search.html.j2", **context(study))


def context(study: Study) -> dict[str, Any]:
    """Everything that `search.html.j2` names."""
    found, points = importances.of(study), recommend.points(study)
    return {
        "study": {"name": study.row["name"], "front": bool(study.front)},
        "edgekit": __version__,
        "sign": digest_with_code([study.path]),
        "headline": words.headline(study),
        "lead": " ".join(filter(None, (words.trials(study), words.budget(study), words.ended(study)))),
        "facts": facts(study, points),
        "points": [_describe(study, point) for point in points],
        "missed": [line for line in (words.nearest(study), words.disturbed(study)) if line],
        "figures": pictures(study, found),
        "front": tables.front_grid(study),
        "untold": found.left_out,
        "cost": " ".join(filter(None, (words.cost(study), words.spared(study)))),
        "rungs": tables.rungs_grid(study),
        "work": tables.work_grid(study),
        "trials": tables.trials_grid(study),
        "about": tables.facts(study),
        "space": tables.space_grid(study),
        "anchors": tables.anchors_grid(study),
        "config": yaml.safe_dump(study.row["config"], sort_keys=False, allow_unicode=True),
        "file": study.path.name,
        "sha256": sha256_file(study.path),
        "digest": study.row["batches"][-1]["digest"] if study.row["batches"] else "of no batch",
    }


def facts(study: Study, points: list[recommend.Point]) -> list[tuple[str, str, str]]:
    """The best value of each objective, and whose it is."""
    found = []
    for point in points:
        for each in point.best_in:
            figure = each.shown(point.trial["values"][each.place])
            found.append((figure, each.best, f"trial {point.number}, {shown(point.trial, each).partition(' (')[2]}"))
    return [(figure, what, beside.removesuffix(")").removesuffix(", ")) for figure, what, beside in found]


def _describe(study: Study, point: recommend.Point) -> dict[str, str]:
    first, *rest = recommend.sentences(study, point)
    title, _, figure = first.partition(". ")
    return {
        "first": f"{title}.",
        "rest": " ".join([figure, *rest]),
        "options": recommend.options(study, point.trial),
        "command": study.command(point.number),
    }


def pictures(study: Study, found: Importances) -> dict[str, Picture]:
    """The figures by name; one that has nothing to show is left out."""
    drawn: dict[str, tuple[Figure | None, str]] = {
        "front": (figures.front(study), f"{len(study.complete)} complete trials by two objectives at a time"),
        "importances": (figures.importances(study, found), _largest(found)),
        "parallel": (figures.parallel(study, found), f"{len(study.trials)} trials through their options"),
        "growth": (figures.growth(study), f"Hypervolume of the front after {len(study.row['batches'])} batches"),
        "cost": (figures.cost(study), f"Trials and work by fidelity: {words.cost(study)}"),
    }
    return {name: picture(figure, alt, CAPTIONS[name]) for name, (figure, alt) in drawn.items() if figure is not None}


def _largest(found: Importances) -> str:
    first = dict.fromkeys(row.objective.title for row in found.rows)
    largest = [
        max((row for row in found.rows if row.objective.title == title), key=lambda row: row.share) for title in first
    ]
    return "; ".join(f"{row.objective.title}: {row.key} {row.share:.0%}" for row in largest)
