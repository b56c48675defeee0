"""`edgekit status`: a table of the seven stages of a run, told from its files."""

from __future__ import annotations

import json
import sys
from datetime import datetime
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from edgekit import state
from edgekit.errors import ConfigError
from edgekit.plan import Plan, load_plan, make_importable
from edgekit.result import RESULT, is_current
from edgekit.run import PLAN
from edgekit.state import StageState

STYLE = {"done": "green", "stale": "yellow", "waits": "dim", "damaged": "red", "unchecked": "yellow", "not run": "dim"}


def show(folder: Path) -> None:
    """Print the table; ConfigError where `folder` is no run."""
    plan = _plan(folder)
    make_importable(plan)
    console = Console(width=None if sys.stdout.isatty() else 140)
    table = Table(title=f"Run {plan.run.name} in {folder}", title_justify="left", title_style="bold")
    for heading in ("stage", "state", "key", "finished", "seconds", "why"):
        table.add_column(heading, no_wrap=heading != "why", justify="right" if heading == "seconds" else "left")
    for found in state.examine(plan, folder, state.data_digest(plan, folder)):
        table.add_row(*_row(found))
    console.print(table)
    console.print(_result(folder), highlight=False, soft_wrap=True)


def _plan(folder: Path) -> Plan:
    """The plan that the run was last walked with, its config as it stands now."""
    try:
        walked = json.loads((folder / PLAN).read_text())
        return load_plan(Path(walked["config"]), walked["settings"])
    except (OSError, ValueError, KeyError, TypeError):
        raise ConfigError(
            f"{folder}: no run of `edgekit run` here; give the folder of one, such as artifacts/digits"
        ) from None


def _row(found: StageState) -> tuple[str, ...]:
    made = found.artifact
    colour = STYLE[found.state]
    return (
        found.stage,
        f"[{colour}]{found.state}[/{colour}]",
        made.key[:12] if made else "",
        f"{datetime.fromisoformat(made.took['finished']).astimezone():%Y-%m-%d %H:%M:%S}" if made else "",
        f"{made.took['seconds']:.1f}" if made else "",
        escape("; ".join(found.reasons)),
    )


def _result(folder: Path) -> str:
    try:
        result = json.loads((folder / RESULT).read_text())
    except (OSError, ValueError):
        return "No result yet."
    if not is_current(result, folder):
        return f"{folder / RESULT} and the bundles beside it are of an earlier run."
    verdict = result["verdict"]
    return f"Result: {verdict['winner']} wins." if verdict["met"] else "Result: no variant inside the budget."
