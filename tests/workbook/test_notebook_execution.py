"""How the failure of a notebook is reported: its class decides the exit code, and nothing looks like success."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from edgekit.core import subprocesses
from edgekit.core.artifacts import Artifact
from edgekit.core.errors import ConversionError, EdgekitError, ResourceError, StageError
from edgekit.workbook import attempts
from edgekit.workbook import notebook as execution
from edgekit.workbook.plan import load_plan
from edgekit.workbook.stage import declared_parameters, open_stage
from tests.conftest import TINY, FinishedRun
from tests.faults.tree import gone

pytestmark = pytest.mark.processes


def notebook(folder: Path, code: str) -> None:
    cell = {"cell_type": "code", "execution_count": None, "id": "a", "metadata": {}, "outputs": [], "source": code}
    spec = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    content = {"cells": [cell], "metadata": spec, "nbformat": 4, "nbformat_minor": 5}
    (folder / "01_profile.ipynb").write_text(json.dumps(content))


def nothing_sealed() -> Artifact:
    raise StageError("sealed no artifact")


def execute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str) -> Path:
    source = tmp_path / "source"
    source.mkdir()
    notebook(source, code)
    step = execution.steps(load_plan(TINY), tmp_path)[0]
    monkeypatch.setattr(execution, "workbook_folder", lambda name: source)
    folder = tmp_path / "run"
    folder.mkdir()
    execution.execute(
        execution.NotebookStep(step.number, step.stage, {"config": str(TINY)}, cell_limit_s=4),
        folder,
        nothing_sealed,
    )
    return folder


@pytest.mark.parametrize(
    ("code", "kind", "exit_code", "message"),
    [
        (
            "from edgekit.core.errors import ConversionError\nraise ConversionError('a → b')",
            ConversionError,
            5,
            "a → b",
        ),
        ("from edgekit.runner.errors import TrustError\nraise TrustError('x')", EdgekitError, 8, "x"),
        ("from edgekit.runner.errors import BundleError\nraise BundleError('x')", EdgekitError, 4, "x"),
        ("1 / 0", StageError, 6, "ZeroDivisionError: division by zero"),
        ("import os\nos.kill(os.getpid(), 9)", StageError, 6, "the kernel died"),
        ("import os\nos._exit(0)", StageError, 6, "cell 2: the kernel died"),
        ("x = 1", StageError, 6, "sealed no artifact"),
        ("import sys\nsys.exit()", StageError, 6, "cell 2: called sys.exit()"),
        ("import sys\nsys.exit(0)", StageError, 6, "cell 2: called sys.exit()"),
        ("import sys\nsys.exit('done')", StageError, 6, "SystemExit: done"),
        ("import time\ntime.sleep(60)", StageError, 6, "cell 2: not finished after 4 s"),
        ("open('/dev/full', 'w').write('x' * 100_000)", ResourceError, 7, "No space left on device"),
    ],
)
def test_a_failing_cell_gives_its_own_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, kind: type[EdgekitError], exit_code: int, message: str
) -> None:
    with pytest.raises(kind) as caught:
        execute(tmp_path, monkeypatch, code)
    assert caught.value.exit_code == exit_code
    assert message in str(caught.value)
    assert "01_profile.ipynb" in str(caught.value)
    assert not list((tmp_path / "run/notebooks").glob(".*partial*"))


def test_nothing_that_a_kernel_started_outlives_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a library's forked sender would, which shares nothing with the kernel but its group."""
    note = tmp_path / "pid"
    forks = "import os, time\npid = os.fork()\nif not pid:\n    time.sleep(600)"
    with pytest.raises(StageError):
        execute(tmp_path, monkeypatch, f"{forks}\nopen({str(note)!r}, 'w').write(str(pid))\nos._exit(0)")
    assert gone([int(note.read_text())], 5) == []


def test_status_says_of_a_cell_that_took_too_long_what_the_run_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(StageError):
        execute(tmp_path, monkeypatch, "import time\ntime.sleep(60)")
    output = attempts.last_failure(tmp_path / "run", "profile") or ""
    assert output.startswith("cell 2: not finished after 4 s, so its kernel was stopped (")


def test_steps_name_every_parameter_of_every_notebook(tmp_path: Path) -> None:
    plan = load_plan(TINY, ["prune.ratio=0.25", "prune.sparsity_steps=1"])
    steps = execution.steps(plan, tmp_path)
    assert [step.notebook for step in steps][::6] == ["01_profile.ipynb", "07_bundle.ipynb"]
    prune = steps[2].parameters
    assert prune["ratio"] == 0.25
    assert prune["settings"] == "prune.ratio=0.25 prune.sparsity_steps=1"
    assert prune["out"] == str(tmp_path)
    for step in steps:
        assert set(step.parameters) == declared_parameters(step.source) and len(step.parameters) <= 12


def test_an_option_that_no_notebook_names_reaches_its_stage_through_the_settings(
    tiny_run: FinishedRun, tmp_path: Path
) -> None:
    step = execution.steps(load_plan(TINY, ["prune.sparsity_steps=7"]), tiny_run.out)[2]
    assert "sparsity_steps" not in step.parameters
    assert open_stage("prune", step.parameters).config.sparsity_steps == 7  # type: ignore[attr-defined]


def test_openmp_threads_of_a_kernel_sleep_while_they_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in subprocesses.OPENMP_WAIT:
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(StageError, match="ValueError: PASSIVE"):
        execute(tmp_path, monkeypatch, "import os\nraise ValueError(os.environ['OMP_WAIT_POLICY'])")
    assert "OMP_WAIT_POLICY" not in os.environ, "the command's own environment stays as it was"
