"""The examples in the docstrings of the workbook's public functions."""

from __future__ import annotations

import doctest
from pathlib import Path
from typing import Any

import pytest

from edgekit.workbook.plan import load_plan
from edgekit.workbook.stage import open_stage
from tests.conftest import ROOT


@pytest.mark.parametrize("documented", [load_plan, open_stage])
def test_the_example_runs(documented: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("EDGEKIT_ARTIFACTS", str(tmp_path))
    [example] = doctest.DocTestFinder(recurse=False).find(documented, documented.__qualname__, globs={})
    runner = doctest.DocTestRunner()
    report: list[str] = []
    assert runner.run(example, out=report.append).failed == 0, "".join(report)
