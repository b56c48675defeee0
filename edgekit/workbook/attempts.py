"""Find out what is running in a run's folder, and how the last attempt at a stage ended."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from edgekit.core import lock
from edgekit.core.config import STAGES
from edgekit.core.run_folder import failed_notebook, working_notebook
from edgekit.training.data_parallel import environment
from edgekit.workbook.config_file import split_settings
from edgekit.workbook.plan import Plan
from edgekit.workbook.stage import RUN_LOCK, STAGE_LOCK

ERROR_CELL = "papermill-error-cell-tag"
"""Tag of the cells that papermill adds to a failed notebook. They do not count when cells are numbered."""
MAX_MESSAGE_LENGTH = 200
"""Longer error messages are truncated in tables."""

HEADING = "## "
FIRST_SECTION = "opening data and models"
"""Description of what a notebook does before its first heading."""
END_REASON_KEY = "edgekit_ended"
"""Metadata key of a failed copy. Its value is the reason why the run stopped the notebook, if no cell failed."""


def running_stage(folder: Path) -> tuple[str, str] | None:
    """Return the stage that is running now and a description of its process, or None if nothing is running."""
    run_lock, stage_lock = (lock.current_holder(folder / name) for name in (RUN_LOCK, STAGE_LOCK))
    if run_lock is None:
        return None
    lock_stage = stage_lock["who"].rpartition(" ")[2] if stage_lock else ""
    started = [stage for stage in STAGES if working_notebook(folder, stage).is_file()] or [lock_stage]
    if started[0] not in STAGES:
        return None
    position = _section_of_notebook(working_notebook(folder, started[0]))
    return started[0], "; ".join(filter(None, [position, _describe_process(run_lock)]))


def current_section(folder: Path, stage: str) -> str:
    """Return the heading of the section that the running notebook has reached, or nothing if it cannot be read."""
    return _section_of_notebook(working_notebook(folder, stage))


def run_holder(folder: Path) -> str | None:
    """Return a description of the process that is running in `folder`, even before its first stage, or None."""
    run = lock.current_holder(folder / RUN_LOCK)
    return _describe_process(run) if run else None


def last_failure(folder: Path, stage: str) -> str | None:
    """Return where and why the last attempt at `stage` ended, or None if it did not fail.

    Call this only while nothing is running, because a notebook's working copy is taken as a sign that its process was
    killed.
    """
    if working_notebook(folder, stage).is_file():
        return f"{_cell_prefix(working_notebook(folder, stage))}its process was killed; run it again"
    failed = failed_notebook(folder, stage)
    if not failed.is_file():
        return None
    last_cell = last_started_cell(failed)
    if reason := _end_reason(failed):
        return f"cell {last_cell}: {reason} ({failed})"
    for number, cell in _code_cells(failed):
        for output in cell.get("outputs", []):
            if output.get("output_type") == "error":
                message = f"{output.get('ename')}: {output.get('evalue')}"
                if len(message) > MAX_MESSAGE_LENGTH:
                    message = message[: MAX_MESSAGE_LENGTH - 1] + "…"
                return f"cell {number}: {message} ({failed})"
    return f"cell {last_cell}: its kernel ended there ({failed})" if last_cell else str(failed)


def next_command(plan: Plan, out: Path) -> str:
    """Return the command that continues a run. It reuses finished stages and resumes the failed one."""
    command = ["edgekit", "run", _relative_path(plan.path)]
    command += [word for setting in split_settings(plan.settings) for word in ("--set", setting)]
    command += ["--out", str(out)] if out != Path("artifacts") else []
    if plan.run.training.shares > 1 and not environment.torchrun_processes() and environment.process_count() > 1:
        command += ["--processes", str(environment.process_count())]
    return shlex.join(command)


def _describe_process(holder: dict[str, Any]) -> str:
    return f"process {holder['process']} on {holder['host']}, since {holder['since'].replace('T', ' ')}"


def _relative_path(path: Path) -> str:
    """Return the path relative to the current folder if it lies below it."""
    current_folder = Path.cwd()
    return str(path.relative_to(current_folder) if path.is_relative_to(current_folder) else path)


def _cell_prefix(path: Path) -> str:
    """Return text such as `cell 7; ` for the cell at which a killed notebook stopped."""
    cell = last_started_cell(path)
    return f"cell {cell}; " if cell else ""


def _section_of_notebook(path: Path) -> str:
    """Return the heading above the last cell that was started, for example `Checks`."""
    started = last_started_cell(path)
    if not started:
        return ""
    heading = ""
    for cell in _cells(path)[: started - 1]:
        lines = "".join(cell["source"]).splitlines() if cell["cell_type"] == "markdown" else []
        heading = next((line[len(HEADING) :] for line in lines if line.startswith(HEADING)), heading)
    return heading or FIRST_SECTION


def last_started_cell(path: Path) -> int:
    """Return the number of the last cell that was started, counted from 1, or 0 if the notebook cannot be read."""
    started = [
        number for number, cell in _code_cells(path) if cell.get("metadata", {}).get("papermill", {}).get("start_time")
    ]
    return started[-1] if started else 0


def _end_reason(path: Path) -> str:
    try:
        return str(json.loads(path.read_text(encoding="utf-8"))["metadata"][END_REASON_KEY])
    except (OSError, ValueError, KeyError):
        return ""


def _code_cells(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the code cells with their numbers, counted from 1 among all cells.

    Yield nothing while the file is incomplete.
    """
    yield from ((number, cell) for number, cell in enumerate(_cells(path), 1) if cell["cell_type"] == "code")


def _cells(path: Path) -> list[dict[str, Any]]:
    """Return all cells except those that papermill added. Return none while the file is incomplete."""
    try:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    except (OSError, ValueError, KeyError):
        return []
    return [cell for cell in cells if ERROR_CELL not in cell.get("metadata", {}).get("tags", [])]
