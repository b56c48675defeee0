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
from edgekit.report.result import RESULT, is_current
from edgekit.workbook import attempts, state
from edgekit.workbook.plan import Plan, load_plan, make_importable
from edgekit.workbook.run import PLAN
from edgekit.workbook.state import StageState

STYLE = {
    "done": "green", "stale": "yellow", "waits": "dim", "damaged": "red", "unchecked": "yellow", "not run": "dim",
    "running": "cyan", "failed": "red",
}  # fmt: skip


def show(folder: Path) -> None:
    """Print the table; ConfigError where `folder` is no run."""
    plan = _plan(folder)
    make_importable(plan)
    console = Console(width=None if sys.stdout.isatty() else 140)
    table = Table(title=f"Run {plan.run.name} in {folder}", title_justify="left", title_style="bold")
    for heading in ("stage", "state", "key", "finished", "seconds", "why"):
        table.add_column(heading, no_wrap=heading != "why", justify="right" if heading == "seconds" else "left")
    at_work, who = attempts.running(folder), attempts.holder(folder)
    for found in state.examine(plan, folder, state.data_digest(plan, folder)):
        table.add_row(*_row(found, *_seen(found, folder, at_work, bool(who))))
    console.print(table)
    if who and not at_work:
        console.print(f"Running: {who}; preflight checks, or between two stages.", highlight=False, soft_wrap=True)
    now = progress.read(folder / watch.FILE) if who else None
    if now and now.steps:
        console.print(f"Now: {now}", highlight=False, markup=False, soft_wrap=True)
    console.print(_result(folder), highlight=False, soft_wrap=True)


def _plan(folder: Path) -> Plan:
    """The plan of the last `edgekit run` in this folder, with its config as it is now."""
    try:
        last = json.loads((folder / PLAN).read_text(encoding="utf-8"))
        return load_plan(Path(last["config"]), last["settings"])
    except (OSError, ValueError, KeyError, TypeError):
        raise ConfigError(
            f"{folder}: no run of `edgekit run` here; give the folder of one, such as artifacts/digits"
        ) from None


def _seen(found: StageState, folder: Path, at_work: tuple[str, str] | None, busy: bool) -> tuple[str, str]:
    """The state and the reason, also of a stage that is running now, waits its turn, or failed at its last attempt."""
    if at_work and found.stage == at_work[0]:
        return "running", at_work[1]
    if busy and found.state == "not run":
        return "waits", "; ".join(found.reasons) or "its turn comes"
    failed = attempts.failure(folder, found.stage) if found.state != "done" and not busy else None
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


def _result(folder: Path) -> str:
    try:
        result = json.loads((folder / RESULT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return "No result yet."
    if not is_current(result, folder):
        return f"{folder / RESULT} and the bundles beside it are of an earlier run."
    verdict = result["verdict"]
    return f"Result: {verdict['winner']} wins." if verdict["met"] else "Result: no variant inside the budget."
