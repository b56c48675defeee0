"""The reference notebooks, all nine, executed anew under nbval: every output is the stored one."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest

from tests.reference.strict import ROOT, strict

pytestmark = pytest.mark.defaults

REFERENCE = ROOT / "tests" / "reference"


def test_every_cell_of_the_nine_notebooks_gives_its_stored_output(tmp_path: Path) -> None:
    notebooks = [nbformat.read(path, as_version=4) for path in sorted(REFERENCE.glob("*.ipynb"))]
    cells = sum(cell.cell_type == "code" for notebook in notebooks for cell in notebook.cells)
    assert len(notebooks) == 9 and cells > 0
    done = strict(REFERENCE, tmp_path)
    assert done.returncode == 0, done.stdout
    assert re.search(rf"^{cells} passed in ", done.stdout, re.MULTILINE), done.stdout[-2000:]
