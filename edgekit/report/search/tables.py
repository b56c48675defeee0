"""Show a study in tables, for the notebook and for the page."""

from __future__ import annotations

from edgekit.core.progress_state import duration
from edgekit.core.schema.study import DimensionRow, TrialRow
from edgekit.report.formatting import count, milliseconds, percent
from edgekit.report.search import recommend, studies, words
from edgekit.report.search.importances import Importances
from edgekit.report.search.studies import Study, parameter_text, value_text
from edgekit.report.search.words import FIDELITY_NAMES, work_by_fidelity, work_by_part
from edgekit.report.tables import Grid, Line, Table, grid


def facts_table(study: Study) -> Table:
    """Show the facts of the study: its config, objectives, budget and sampler."""
    return Table(("study", study.row["name"]), [row for row in facts(study) if row[0] != "key"])


def front_table(study: Study) -> Table:
    """Show the front with its intervals, and the options of each trial."""
    chosen = {point.number: point.title for point in recommend.points(study)}
    rows = [
        (
            f"trial {trial['number']}",
            chosen.get(trial["number"], ""),
            *(value_text(trial, each) for each in study.objectives),
            recommend.options(study, trial),
        )
        for trial in study.front
    ]
    return Table(("", "", *(each.title for each in study.objectives), "options"), rows, "" if rows else "No front.")


def importances_table(study: Study, importance_rows: Importances) -> Table:
    """Show the share of each option for each objective and, in brackets, its range if some trials are left out."""
    by_option = {(row.key, row.objective): row for row in importance_rows.rows}
    keys, names = list(dict.fromkeys(row.key for row in importance_rows.rows)), studies.option_names(study)
    rows = []
    for key in keys:
        importances = [by_option.get((key, each)) for each in study.objectives]
        cells = [
            f"{percent(row.share)} ({percent(row.low)} to {percent(row.high)})" if row else "–" for row in importances
        ]
        rows.append((names[key], *cells, next(str(row.trials) for row in importances if row)))
    return Table(
        ("option", *(each.title for each in study.objectives), "trials"), rows, " ".join(importance_rows.left_out)
    )


def front_grid(study: Study) -> Grid:
    """Show the front, sorted by the first objective, with the recommended trials marked."""
    chosen = {point.number: point.title for point in recommend.points(study)}
    headings = [each.title for each in study.objectives]
    lines = []
    for trial in study.front:
        title = chosen.get(trial["number"], "")
        cells = [str(trial["number"]), title, *(value_text(trial, each) for each in study.objectives)]
        lines.append(Line([*cells, recommend.options(study, trial), file_list(trial)], "ships" if title else ""))
    columns = ["trial", "", *headings, "options", "files"]
    return Grid("The front, with intervals", columns, lines, frozenset(["trial", *headings]), frozenset({"options"}))


def trials_grid(study: Study) -> Grid:
    """Show all trials by number, with the reason for each that exceeded the budget or ended early."""
    on_front = {each["number"] for each in study.front}
    headings = [each.heading for each in study.objectives]
    lines = []
    for trial in study.trials:
        values = [each.number(trial["values"][each.place]) for each in study.objectives]
        kind = "ships" if trial["number"] in on_front else "" if trial["feasible"] else "out"
        cells = [
            str(trial["number"]),
            trial_standing(trial, on_front),
            FIDELITY_NAMES.get(trial["rung"], trial["rung"]),
            *values,
        ]
        lines.append(Line([*cells, recommend.options(study, trial), trial_reason(trial)], kind))
    columns = ["trial", "state", "fidelity", *headings, "options", "why"]
    return Grid("Every trial", columns, lines, frozenset(["trial", *headings]), frozenset({"options", "why"}))


def trial_standing(trial: TrialRow, on_front: set[int]) -> str:
    """Return `on the front`, `over the budget`, or the state of the trial."""
    if trial["number"] in on_front:
        return "on the front"
    if trial["state"] != "complete":
        return trial["state"]
    return "complete" if trial["feasible"] else "over the budget"


def trial_reason(trial: TrialRow) -> str:
    """Return the reason in one line, or the limits that the trial exceeds."""
    reason = " ".join("".join(each if each.isprintable() else " " for each in trial["reason"]).split())
    again = f"as trial {trial['same_as']}" if trial["same_as"] is not None else ""
    return "; ".join(filter(None, [again, reason, words.excess_text(trial)]))


def file_list(trial: TrialRow) -> str:
    """Return the file that represents the trial on each target, for example `int8 for tflite`."""
    return ", ".join(f"{variant} for {target}" for target, variant in trial["variants"].items())


def fidelities_grid(study: Study) -> Grid:
    """Show how many trials ended at each fidelity and why, and the work of these trials."""
    rows = work_by_fidelity(study)
    whole = sum(row.seconds for row in rows)
    cells = []
    for row in rows:
        ended = (count(row.ended.get(state, 0)) for state in ("infeasible", "stopped", "failed"))
        share = percent(row.seconds / whole if whole else None)
        cells.append((row.title, count(row.came), *ended, f"{row.seconds:,.0f}", share))
    columns = ("fidelity", "trials", "infeasible", "stopped", "failed", "work, s", "share")
    caption = "Fidelities, from low to high; the work is that of the trials that ended there"
    return grid(caption, columns, cells, numeric="|".join(columns[1:]))


def work_grid(study: Study) -> Grid:
    """Show how much work each part of the search took."""
    rows = work_by_part(study)
    whole = sum(rows.values())
    cells = [
        (FIDELITY_NAMES.get(name, name), f"{took:,.0f}", percent(took / whole if whole else None))
        for name, took in rows.items()
    ]
    return grid("Where the work went", ("part", "work, s", "share"), cells, numeric="work, s|share")


def facts(study: Study) -> list[tuple[str, str]]:
    """Return the facts of the study, as terms and values."""
    row = study.row
    took = row["batches"][-1]["seconds"] if row["batches"] else 0.0
    return [
        ("config", study.config_path),
        ("proposed by", words.proposed(study).removeprefix("Proposed by ")),
        ("objectives", ", ".join(f"{each.title} ({'up' if each.maximize else 'down'})" for each in study.objectives)),
        ("budget", words.budget(study).removeprefix("The budget: ")),
        ("seed and batch", f"{row['seed']}; {row['batch']} trials in each batch"),
        ("took", duration(took)),
        ("key", row["key"]),
        ("written by", f"edgekit {row['edgekit']}"),
    ]


def space_grid(study: Study) -> Grid:
    """Show every option with its range or choices, and when it exists."""
    rows = [(row["key"], _range(row), _when(row)) for row in study.row["space"]]
    return grid("The space", ("option", "values", "exists when"), rows, words="values|exists when")


def _range(row: DimensionRow) -> str:
    if "choices" in row:
        return ", ".join(parameter_text(each) for each in row["choices"])
    step, log = row.get("step"), ", log scale" if row.get("log") else ""
    return f"{row.get('low'):g} to {row.get('high'):g}{f', step {step:g}' if step else ''}{log}"


def _when(row: DimensionRow) -> str:
    return "; ".join(
        f"{key} is {' or '.join(map(parameter_text, values))}" for key, values in row.get("when", {}).items()
    )


def baselines_grid(study: Study) -> Grid:
    """Show the baseline's files, which every round timed beside those of the trials."""
    rows = [(each["name"], each["target"], milliseconds(each["p50_ms"])) for each in study.row["anchors"]]
    caption = "Baselines: timed beside the trials in every round, because latencies are reported as ratios to theirs"
    return grid(caption, ("file", "target", "p50 in the first round, ms"), rows, numeric="p50 in the first round, ms")
