"""A study as tables of a notebook."""

from __future__ import annotations

from edgekit.report.formatting import Table, percent
from edgekit.report.search import grids, recommend, studies
from edgekit.report.search.importances import Importances
from edgekit.report.search.studies import Study, shown


def facts(study: Study) -> Table:
    """What was searched, for what, and by whom."""
    return Table(("study", study.row["name"]), [row for row in grids.about(study) if row[0] != "key"])


def front(study: Study) -> Table:
    """The front with its intervals, and the options of each trial."""
    chosen = {point.number: point.title for point in recommend.points(study)}
    rows = [
        (
            f"trial {trial['number']}",
            chosen.get(trial["number"], ""),
            *(shown(trial, each) for each in study.objectives),
            recommend.options(study, trial),
        )
        for trial in study.front
    ]
    return Table(("", "", *(each.title for each in study.objectives), "options"), rows, "" if rows else "No front.")


def importances(study: Study, found: Importances) -> Table:
    """A row for each option, its share of each objective; in brackets with other quarters of the trials left out."""
    told = {(row.key, row.objective): row for row in found.rows}
    keys, names = list(dict.fromkeys(row.key for row in found.rows)), studies.names(study)
    rows = []
    for key in keys:
        mine = [told.get((key, each)) for each in study.objectives]
        cells = [f"{percent(row.share)} ({percent(row.low)} to {percent(row.high)})" if row else "–" for row in mine]
        rows.append((names[key], *cells, next(str(row.trials) for row in mine if row)))
    return Table(("option", *(each.title for each in study.objectives), "trials"), rows, " ".join(found.left_out))
