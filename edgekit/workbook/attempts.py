"""What runs in a run's folder now, and how the last attempt at a stage ended, from locks and executed notebooks."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from edgekit.core import lock
from edgekit.core.config import STAGES
from edgekit.core.run_folder import failed_notebook, working_notebook
from edgekit.training.shares import environment
from edgekit.workbook.config_file import split_settings
from edgekit.workbook.plan import Plan
from edgekit.workbook.stage import RUN_LOCK, STAGE_LOCK

ERROR_CELL = "papermill-error-cell-tag"
"""On the cells that papermill adds to a notebook that failed; they are not counted."""
LETTERS = 200
"""Of an error's message in a table."""

HEADING = "## "
OPENING = "opening data and models"
"""What a notebook does before its first section."""
ENDED = "edgekit_ended"
"""In the metadata of a failed copy: how the run ended it, where the run did that and no cell."""


def running(folder: Path) -> tuple[str, str] | None:
    """The stage that runs now, and its process as text; None if nothing runs."""
    run, stage_holder = (lock.current_holder(folder / name) for name in (RUN_LOCK, STAGE_LOCK))
    if run is None:
        return None
    whose = stage_holder["who"].rpartition(" ")[2] if stage_holder else ""
    begun = [stage for stage in STAGES if working_notebook(folder, stage).is_file()] or [whose]
    if begun[0] not in STAGES:
        return None
    where = _section(working_notebook(folder, begun[0]))
    return begun[0], "; ".join(filter(None, [where, _process(run)]))


def section(folder: Path, stage: str) -> str:
    """What the notebook that is being executed is doing: its section's heading. Empty where that cannot be read."""
    return _section(working_notebook(folder, stage))


def holder(folder: Path) -> str | None:
    """The process that holds the run in `folder`, at a stage or before the first; None if there is none."""
    run = lock.current_holder(folder / RUN_LOCK)
    return _process(run) if run else None


def failure(folder: Path, stage: str) -> str | None:
    """Where and of what the last attempt at `stage` ended; None where none failed. Ask only where nothing is running.

    One that was killed leaves the copy that it worked on.
    """
    if working_notebook(folder, stage).is_file():
        return f"{_place(working_notebook(folder, stage))}its process was killed; run it again"
    kept = failed_notebook(folder, stage)
    if not kept.is_file():
        return None
    begun = last_begun(kept)
    if words := _ended(kept):
        return f"cell {begun}: {words} ({kept})"
    for number, cell in _code(kept):
        for output in cell.get("outputs", []):
            if output.get("output_type") == "error":
                said = f"{output.get('ename')}: {output.get('evalue')}"
                return f"cell {number}: {said if len(said) <= LETTERS else said[: LETTERS - 1] + '…'} ({kept})"
    return f"cell {begun}: its kernel ended there ({kept})" if begun else str(kept)


def next_command(plan: Plan, out: Path) -> str:
    """The command to continue with: finished stages are reused, and the failed one resumes where it stopped."""
    words = ["edgekit", "run", _short(plan.path)]
    words += [word for setting in split_settings(plan.settings) for word in ("--set", setting)]
    words += ["--out", str(out)] if out != Path("artifacts") else []
    if plan.run.training.shares > 1 and not environment.of_torchrun() and environment.processes() > 1:
        words += ["--processes", str(environment.processes())]
    return shlex.join(words)


def _process(holder: dict[str, Any]) -> str:
    return f"process {holder['process']} on {holder['host']}, since {holder['since'].replace('T', ' ')}"


def _short(path: Path) -> str:
    """From the folder that one is in, where it lies below that."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def _place(path: Path) -> str:
    """`cell 7; `, where a notebook ended that has nobody at work any more."""
    begun = last_begun(path)
    return f"cell {begun}; " if begun else ""


def _section(path: Path) -> str:
    """The heading above the last cell that was begun: `Checks`."""
    begun = last_begun(path)
    if not begun:
        return ""
    heading = ""
    for cell in _cells(path)[: begun - 1]:
        lines = "".join(cell["source"]).splitlines() if cell["cell_type"] == "markdown" else []
        heading = next((line[len(HEADING) :] for line in lines if line.startswith(HEADING)), heading)
    return heading or OPENING


def last_begun(path: Path) -> int:
    """The number of the last cell that was begun; 0 where that cannot be read."""
    begun = [number for number, cell in _code(path) if cell.get("metadata", {}).get("papermill", {}).get("start_time")]
    return begun[-1] if begun else 0


def _ended(path: Path) -> str:
    try:
        return str(json.loads(path.read_text(encoding="utf-8"))["metadata"][ENDED])
    except (OSError, ValueError, KeyError):
        return ""


def _code(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Code cells with their numbers, counted from 1 among all cells; nothing while the file is half written."""
    yield from ((number, cell) for number, cell in enumerate(_cells(path), 1) if cell["cell_type"] == "code")


def _cells(path: Path) -> list[dict[str, Any]]:
    """All cells but those that papermill added; none while the file is half written."""
    try:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    except (OSError, ValueError, KeyError):
        return []
    return [cell for cell in cells if ERROR_CELL not in cell.get("metadata", {}).get("tags", [])]
