"""`edgekit field report`: notebook 08 on a folder of reports, and its decision on the terminal."""

from __future__ import annotations

import shutil
from pathlib import Path

import nbformat
from typer.testing import CliRunner, Result

from edgekit.cli.app import app
from tests.report.field.reports import EXAMPLES


def edgekit(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_the_notebook_is_executed_on_the_folder_that_was_named(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name in ("camera-7-march", "camera-7-june"):
        shutil.copy(EXAMPLES / f"{name}.json", tmp_path / "in")
    out = tmp_path / "new" / "field.ipynb"
    done = edgekit("field", "report", tmp_path / "in", "--out", out)
    assert done.exit_code == 0, done.output
    assert (
        "2, earliest (then): camera-7-march, latest (now): camera-7-june" in done.output
        and "next        " in done.output
    )
    notebook = nbformat.read(out, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.execution_count for cell in code)
    displayed = "".join(output.get("text", "") for cell in code for output in cell.outputs)
    assert "camera-7-june: " in displayed and "september" not in displayed
    pictures = [output for cell in code for output in cell.outputs if "image/png" in output.get("data", {})]
    assert len(pictures) == 3
    assert [path.name for path in out.parent.iterdir()] == ["field.ipynb"]


def test_what_is_no_folder_of_reports_is_one_line_before_any_kernel_starts(tmp_path: Path) -> None:
    for folder, out, code, text in (
        (tmp_path, "a.ipynb", 4, "has no field report"),
        (tmp_path / "none", "a.ipynb", 4, "no such folder"),
        (EXAMPLES, "a.html", 2, "name a file that ends in .ipynb"),
    ):
        done = edgekit("field", "report", folder, "--out", tmp_path / out)
        assert done.exit_code == code and text in done.output
    assert not list(tmp_path.iterdir())
