"""`edgekit status`: a table of the stages of a run, read from its files."""

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
    """Print the table of stages and the result in one line; with `everything` all variants, notes and the summary.

    Raises
    ------
    ConfigError
        There is no run in `folder`.
    """
    plan = _plan(folder)
    make_importable(plan)
    console = Console(width=None if sys.stdout.isatty() else 140)
    table = Table(title=f"Run {plan.run.name} in {folder}", title_justify="left", title_style="bold")
    for heading in ("stage", "state", "key", "finished", "seconds", "why"):
        table.add_column(heading, no_wrap=heading != "why", justify="right" if heading == "seconds" else "left")
    at_work, who = attempts.running_stage(folder), attempts.run_holder(folder)
    for stage in state.examine_stages(plan, folder, state.data_digest(plan, folder)):
        table.add_row(*_row(stage, *_seen(stage, folder, at_work, bool(who))))
    console.print(table)
    if who and not at_work:
        console.print(
            f"Running: {who}; it is checking data and networks, or between two stages.", highlight=False, soft_wrap=True
        )
    now = progress.read(folder / watch.FILE) if who else None
    if now and now.steps:
        console.print(f"Now: {now}", highlight=False, markup=False, soft_wrap=True)
    result = _current_result(folder)
    if result is not None and everything:
        from edgekit.report import console as report
        from edgekit.report import html, summary

        drawn = html.is_drawn(folder)
        console.print()
        report.show(result, folder, console, drawn=drawn)
        console.print()
        summary.show(result, folder, console, drawn=drawn)
        return
    console.print(_result(result, folder), highlight=False, soft_wrap=True)


def _plan(folder: Path) -> Plan:
    """The plan of the last `edgekit run` in this folder, with its config as it is now."""
    try:
        last = json.loads((folder / PLAN_FILE).read_text(encoding="utf-8"))
        return load_plan(Path(last["config"]), last["settings"])
    except (OSError, ValueError, KeyError, TypeError):
        raise ConfigError(f"{folder}: not the folder of a run; give one, such as artifacts/digits") from None


def _seen(found: StageState, folder: Path, at_work: tuple[str, str] | None, busy: bool) -> tuple[str, str]:
    """The state and the reason, also of a stage that is running now, waits its turn, or failed at its last attempt."""
    if at_work and found.stage == at_work[0]:
        return "running", at_work[1]
    if busy and found.state == "not run":
        return "waits", "; ".join(found.reasons) or "its turn comes"
    failed = attempts.last_failure(folder, found.stage) if found.state != "done" and not busy else None
    if failed:
        return "failed", "; ".join([failed, *(found.reasons if found.state != "not run" else ())])
    return found.state, "; ".join(found.reasons)


def _row(found: StageState, seen: str, why: str) -> tuple[str, ...]:
    made = found.artifact
    colour = STYLE[seen]
    return (
        found.stage,
        f"[{colour}]{seen}[/{colour}]",
        made.key[:12] if made else "",
        f"{datetime.fromisoformat(made.took['finished']).astimezone():%Y-%m-%d %H:%M:%S}" if made else "",
        f"{made.took['seconds']:.1f}" if made else "",
        escape(why),
    )


def _current_result(folder: Path) -> Result | None:
    """result.json, if it is there and says what the artifacts say now."""
    try:
        result: Result = json.loads((folder / RESULT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return result if is_current(result, folder) else None


def _result(result: Result | None, folder: Path) -> str:
    """The result in one line, and where the rest is."""
    if result is None and (folder / RESULT).is_file():
        return f"{folder / RESULT} and the bundles beside it are of an earlier run."
    if result is None:
        return "No result yet."
    from edgekit.report import summary

    return f"Result: {summary.headline(result)}. For all variants: {summary.all_command(folder)}"
