"""Notebook 00 runs in papermill with `study` as a parameter, for any study that a search may leave."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest

from edgekit.core.errors import StageError
from edgekit.workbook.notebook import SEARCH_NOTEBOOK, execute_side_notebook
from tests.report.search import example


def test_the_notebook_is_executed_on_the_study_that_was_named(tmp_path: Path) -> None:
    example.write(example.study(trials=8, budget={"accuracy_drop_pp": 0.0}), tmp_path / "in" / "study.json")
    out = tmp_path / "new" / "00_search.ipynb"
    execute_side_notebook(SEARCH_NOTEBOOK, {"study": str(tmp_path / "in")}, out)
    notebook = nbformat.read(out, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.execution_count for cell in code)
    shown = "".join(output.get("text", "") for cell in code for output in cell.outputs)
    assert "No trial is inside the budget" in shown and "8 trials, 0 on the front" in shown
    assert [path.name for path in out.parent.iterdir()] == ["00_search.ipynb"]


def test_a_damaged_study_fails_in_its_first_cell_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "study.json").write_text("{")
    with pytest.raises(StageError, match="DataError: .*study.json: not JSON"):
        execute_side_notebook(SEARCH_NOTEBOOK, {"study": str(tmp_path)}, tmp_path / "out.ipynb")
    assert [path.name for path in tmp_path.iterdir()] == ["study.json"]
