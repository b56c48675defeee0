"""The command `edgekit status`: a table of the stages of a run, read from its files."""

from __future__ import annotations

import json
import sys
from datetime import datetime
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from edgekit.core import progress
from edgekit.core import terminal_progress as watch
from edgekit.core.errors import ConfigError
from edgekit.core.schema.result import Result
from edgekit.report.result import RESULT, is_current
from edgekit.workbook import attempts, state
from edgekit.workbook.plan import Plan, load_plan, make_importable
from edgekit.workbook.run import PLAN_FILE
from edgekit.workbook.state import StageState

STYLE = {
    "done": "green", "stale": "yellow", "waits": "dim", "damaged": "red", "unchecked": "yellow", "not run": "dim",
    "running": "cyan", "failed": "red",
}  # fmt: skip


def show(folder: Path, everything: bool = False) -> None:
    """Print the table of stages, and the result in one line. `everything` adds all variants, notes and the summary.

    Raises
    ------
    ConfigError
        There is no run in `folder`.
    """
    plan = _last_plan(folder)
    make_importable(plan)
    console = Console(width=None if sys.stdout.isatty() else 140)
    table = Table(title=f"Run {plan.run.name} in {folder}", title_justify="left", title_style="bold")
    for heading in ("stage", "state", "key", "finished", "seconds", "why"):
        table.add_column(heading, no_wrap=heading != "why", justify="right" if heading == "seconds" else "left")
    running, process = attempts.running_stage(folder), attempts.run_holder(folder)
    for stage in state.examine_stages(plan, folder, state.data_digest(plan, folder)):
        table.add_row(*_row(stage, *_displayed_state(stage, folder, running, bool(process))))
    console.print(table)
    if process and not running:
        console.print(
            f"Running: {process}; it is checking data and networks, or between two stages.",
            highlight=False,
            soft_wrap=True,
        )
    current = progress.read_state(folder / watch.FILE) if process else None
    if current and current.steps:
        console.print(f"Now: {current}", highlight=False, markup=False, soft_wrap=True)
    result = _current_result(folder)
    if result is not None and everything:
        from edgekit.report import console as report
        from edgekit.report import html, summary

        drawn = html.is_page_current(folder)
        console.print()
        report.print_run(result, folder, console, has_report=drawn)
        console.print()
        summary.print_summary(result, folder, console, has_report=drawn)
        return
    console.print(_result_line(result, folder), highlight=False, soft_wrap=True)


def _last_plan(folder: Path) -> Plan:
    """Return the plan of the last `edgekit run` in this folder, with the current content of its config."""
    try:
        record = json.loads((folder / PLAN_FILE).read_text(encoding="utf-8"))
        return load_plan(Path(record["config"]), record["settings"])
    except (OSError, ValueError, KeyError, TypeError):
        raise ConfigError(f"{folder}: is not the folder of a run; name one, such as artifacts/digits") from None


def _displayed_state(
    stage: StageState, folder: Path, running: tuple[str, str] | None, is_busy: bool
) -> tuple[str, str]:
    """Return the state to display, which may be "running", "waits" or "failed", and the reason for it."""
    if running and stage.stage == running[0]:
        return "running", running[1]
    if is_busy and stage.state == "not run":
        return "waits", "; ".join(stage.reasons) or "an earlier stage is running"
    failure = attempts.last_failure(folder, stage.stage) if stage.state != "done" and not is_busy else None
    if failure:
        return "failed", "; ".join([failure, *(stage.reasons if stage.state != "not run" else ())])
    return stage.state, "; ".join(stage.reasons)


def _row(stage: StageState, displayed_state: str, reason: str) -> tuple[str, ...]:
    artifact = stage.artifact
    colour = STYLE[displayed_state]
    return (
        stage.stage,
        f"[{colour}]{displayed_state}[/{colour}]",
        artifact.key[:12] if artifact else "",
        f"{datetime.fromisoformat(artifact.took['finished']).astimezone():%Y-%m-%d %H:%M:%S}" if artifact else "",
        f"{artifact.took['seconds']:.1f}" if artifact else "",
        escape(reason),
    )


def _current_result(folder: Path) -> Result | None:
    """Return result.json if it exists and matches the artifacts."""
    try:
        result: Result = json.loads((folder / RESULT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return result if is_current(result, folder) else None


def _result_line(result: Result | None, folder: Path) -> str:
    """Return the result in one line, with the command that shows the rest."""
    if result is None and (folder / RESULT).is_file():
        return f"{folder / RESULT} and the bundles beside it are from an earlier run."
    if result is None:
        return "No result yet."
    from edgekit.report import summary

    return f"Result: {summary.headline(result)}. For all variants: {summary.all_command(folder)}"
