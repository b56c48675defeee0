"""What goes on in a run's folder and how the last attempt ended, as `edgekit status` and the end of a run show it."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from pathlib import Path
from typing import Any

from edgekit.core import lock, run_folder
from edgekit.core import terminal_progress as watch
from edgekit.core.config import STAGES
from edgekit.core.progress_state import ProgressState, StepState
from edgekit.workbook import attempts
from edgekit.workbook.plan import load_plan
from edgekit.workbook.stage import RUN_LOCK, STAGE_LOCK
from tests.conftest import TINY, FinishedRun, run_edgekit


def cell(
    kind: str, started: bool = False, outputs: list[Any] | None = None, *tags: str, source: str = ""
) -> dict[str, Any]:
    times = {"papermill": {"start_time": "2026-01-01T00:00:00" if started else None}}
    return {"cell_type": kind, "metadata": {**times, "tags": list(tags)}, "outputs": outputs or [], "source": source}


def write(path: Path, *cells: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"cells": cells}))


def at_work(folder: Path, stage: str) -> None:
    heading = cell("markdown", source="## Convert, run, compare\n\nEach file answers.")
    cells = [heading, cell("code", True), cell("code", True), cell("markdown", source="## Checks"), cell("code")]
    write(run_folder.working_notebook(folder, stage), *cells)


def test_status_says_that_nothing_runs_even_where_a_killed_process_left_its_name(tmp_path: Path) -> None:
    assert attempts.running_stage(tmp_path) is None
    with lock.hold(tmp_path / RUN_LOCK, "edgekit run tiny.yaml"):
        remaining = (tmp_path / f"{RUN_LOCK}.holder").read_bytes()
        assert lock.current_holder(tmp_path / RUN_LOCK)
    (tmp_path / f"{RUN_LOCK}.holder").write_bytes(remaining)
    at_work(tmp_path, "convert")
    assert attempts.running_stage(tmp_path) is None
    failure = attempts.last_failure(tmp_path, "convert")
    assert failure == "cell 3; its process was killed; run it again"


def test_a_stage_at_work_is_shown_with_the_section_of_its_notebook_and_its_process(tmp_path: Path) -> None:
    at_work(tmp_path, "convert")
    with lock.hold(tmp_path / RUN_LOCK, "edgekit run tiny.yaml"):
        running = attempts.running_stage(tmp_path)
    assert running is not None and running[0] == "convert"
    assert running[1].startswith("Convert, run, compare; process ")


def test_before_its_first_section_a_notebook_opens_data_and_models(tmp_path: Path) -> None:
    title = cell("markdown", source="# 05 · Convert")
    write(run_folder.working_notebook(tmp_path, "convert"), title, cell("code", True))
    assert attempts.current_section(tmp_path, "convert") == "opening data and models"
    assert attempts.current_section(tmp_path, "prune") == ""


def test_a_stage_of_a_notebook_in_jupyterlab_is_shown_too(tmp_path: Path) -> None:
    who = "a notebook that runs stage prune"
    with lock.hold(tmp_path / RUN_LOCK, who), lock.hold(tmp_path / STAGE_LOCK, who):
        running = attempts.running_stage(tmp_path)
    assert running is not None and running[0] == "prune"


def test_a_failure_is_shown_with_its_cell_and_its_error(tmp_path: Path) -> None:
    error = {"output_type": "error", "ename": "ConversionError", "evalue": "no such operator " + "x" * 300}
    papermills = cell("markdown", False, None, attempts.ERROR_CELL)
    write(run_folder.failed_notebook(tmp_path, "convert"), papermills, cell("code", True), cell("code", True, [error]))
    failure = attempts.last_failure(tmp_path, "convert")
    assert failure is not None and failure.startswith("cell 2: ConversionError: no such operator xxx")
    assert "…" in failure and "05_convert.failed.ipynb" in failure
    assert attempts.last_failure(tmp_path, "prune") is None
    write(run_folder.failed_notebook(tmp_path, "prune"), cell("code", True), cell("code"))
    failure = attempts.last_failure(tmp_path, "prune")
    assert failure is not None and failure.startswith("cell 1: its kernel ended there")


def test_a_half_written_copy_says_no_cell(tmp_path: Path) -> None:
    at_work(tmp_path, "convert")
    path = run_folder.working_notebook(tmp_path, "convert")
    path.write_text(path.read_text()[:-20])
    assert attempts.last_failure(tmp_path, "convert") == "its process was killed; run it again"


def test_the_next_command_can_be_typed_as_it_stands(tmp_path: Path) -> None:
    settings = ["prune.ratio=0.4", "distill.teachers=[{baseline: true}]"]
    plan = load_plan(TINY, settings)
    words = shlex.split(attempts.next_command(plan, tmp_path))
    assert words[:2] == ["edgekit", "run"] and words[-2:] == ["--out", str(tmp_path)]
    assert "--from" not in words and "--force" not in words  # which would throw away what the failed stage had done
    again = load_plan(
        Path(words[2]), [word for before, word in zip(words, words[1:], strict=False) if before == "--set"]
    )
    assert again.stages == plan.stages and again.run == plan.run
    assert "--out" not in attempts.next_command(plan, Path("artifacts"))


def test_status_shows_what_is_at_work(tiny_run: FinishedRun, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny_run.folder, tmp_path / "tiny", ignore=shutil.ignore_patterns(".training")))
    (folder / "notebooks/.convert.receipt.json").unlink()
    at_work(folder, "convert")
    with lock.hold(folder / RUN_LOCK, "edgekit run tiny.yaml"):
        lines = run_edgekit("status", str(folder)).stdout.splitlines()
    (line,) = [line for line in lines if " convert " in line]
    assert "running" in line and "Convert, run, compare" in line
    output = run_edgekit("status", str(folder)).stdout
    (line,) = [line for line in output.splitlines() if " convert " in line]
    assert "failed" in line and "killed" in line and "Running:" not in output


def test_status_shows_a_run_that_looks_ahead(tmp_path: Path) -> None:
    (tmp_path / ".plan.json").write_text(json.dumps({"config": str(TINY), "settings": ""}))
    (tmp_path / watch.FILE).write_text(ProgressState(1, (StepState("data", "files", 12, 60),), 45.0).to_json())
    with lock.hold(tmp_path / RUN_LOCK, "edgekit run tiny.yaml"):
        output = run_edgekit("status", str(tmp_path)).stdout
    assert "not run" not in output and output.count(" waits ") == len(STAGES)
    assert "Now: data · 12 of 60 files · about 45 s left" in output
    assert (
        f"Running: process {os.getpid()} on " in output
        and "; it is checking data and networks, or between two stages." in output
    )
