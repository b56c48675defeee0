"""The reference notebooks: one for each notebook, in step with it, none of its outputs lost; and nbval really compares.

The comparison of all outputs is in test_nbval.py; tests/reference/make.py shows how they are written.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbval.plugin import get_sanitize_patterns

from edgekit.core.run_folder import notebook_name
from edgekit.workbook.plan import load_plan
from tests.conftest import ROOT, TINY, FinishedRun
from tests.reference.make import ALL, IGNORE, file_name, prepare, sanitize, tags
from tests.reference.strict import SANITIZER, strict

REFERENCE = ROOT / "tests" / "reference"
MOST_BYTES = 24_000

Cell = Any


def reference(stage: str) -> list[Cell]:
    return list(nbformat.read(REFERENCE / file_name(stage), as_version=4).cells)


def texts(cell: Cell) -> list[str]:
    """Everything in a cell's outputs that nbval compares."""
    shown = [text for output in cell.outputs for text in output.get("data", {}).values()]
    return [*shown, *(output.text for output in cell.outputs if "text" in output)]


def test_there_is_one_for_each_notebook() -> None:
    assert sorted(path.name for path in REFERENCE.glob("*.ipynb")) == [file_name(stage) for stage in ALL]


@pytest.mark.parametrize("stage", ALL)
class TestReference:
    def test_its_code_is_that_of_the_notebook_on_the_tiny_config(self, stage: str) -> None:
        now = [(cell.id, tags(cell), cell.source) for cell in prepare(stage, load_plan(TINY)).cells]
        assert [(cell.id, tags(cell), cell.source) for cell in reference(stage)] == now, (
            "the notebook has changed: run `make reference` and look at what else did"
        )

    def test_it_has_not_lost_its_outputs(self, stage: str) -> None:
        for cell in reference(stage):
            assert cell.execution_count is not None, f"{cell.id} was never run, and nbval compares nothing there"
            if not {"parameters", IGNORE} & set(tags(cell)):
                assert any(text.strip() for text in texts(cell)), f"{cell.id} has lost its output"

    def test_it_holds_what_is_compared_and_nothing_of_the_machine_that_wrote_it(self, stage: str) -> None:
        patterns = get_sanitize_patterns(SANITIZER.read_text())
        assert (REFERENCE / file_name(stage)).stat().st_size < MOST_BYTES
        for cell in reference(stage):
            assert all(text == sanitize(text, patterns) for text in texts(cell)), cell.id
            assert not (cell.outputs and IGNORE in tags(cell)), cell.id

    def test_it_is_not_all_measurements(self, stage: str) -> None:
        """Notebook 06 measures most; even there, opening, sealing and a figure are compared."""
        assert sum(bool(cell.outputs) for cell in reference(stage)) >= 3


@pytest.mark.parametrize(
    ("stage", "text"),
    [
        ("profile", "240 training samples, 10 classes"),
        ("profile", "3,088,704"),
        ("distill", "share of the baseline's: 0.07829 ≤ 1"),
        ("prune", "156,792"),
        ("quantize", "layers in the sensitivity table: 6"),
        ("convert", "✓ missing without a reason: nothing"),
        ("field", "camera-7-september: look at the inputs, and 2 more steps"),
        ("bundle", "4 golden answers reproduced: 1 ≥ 1"),
    ],
)
def test_the_sanitizer_leaves_what_is_deterministic(stage: str, text: str) -> None:
    assert any(text in found for cell in reference(stage) for found in texts(cell))


@pytest.mark.processes
def test_nbval_fails_on_an_output_that_is_altered_or_lost(tiny_run: FinishedRun, tmp_path: Path) -> None:
    """One cell of each kind; all others pass."""
    shutil.copytree(tiny_run.folder, tmp_path / "tiny")
    shutil.rmtree(tmp_path / "tiny/bundles")
    notebook = nbformat.read(REFERENCE / notebook_name("bundle"), as_version=4)
    cells = {cell.id: cell for cell in notebook.cells}
    cells["parameters"].source = re.sub(r'(config: str = )"[^"]*"', rf'\1"{TINY}"', cells["parameters"].source)
    altered = cells["checks"].outputs[0]
    assert "4 golden answers" in altered.text
    altered.text = altered.text.replace("4 golden answers", "5 golden answers", 1)
    lost = next(cell for cell in notebook.cells if cell.id != "checks" and texts(cell) and IGNORE not in tags(cell))
    lost.outputs = []
    nbformat.write(notebook, tmp_path / "tampered.ipynb")

    done = strict(tmp_path / "tampered.ipynb", tmp_path)
    assert done.returncode == 1, done.stdout
    code = [cell.id for cell in notebook.cells if cell.cell_type == "code"]
    assert re.search(rf"2 failed, {len(code) - 2} passed", done.stdout), done.stdout
    for cell in ("checks", lost.id):
        assert f"Cell {code.index(cell)}: Cell outputs differ" in done.stdout, done.stdout
