"""The examples in the docstrings of public functions of the targets run as written."""

from __future__ import annotations

import doctest
from pathlib import Path
from typing import Any

import pytest

from edgekit import targets
from edgekit.targets import step


@pytest.mark.parametrize(("documented", "module"), [(targets.precisions, targets), (step.export, step)])
def test_the_example_runs(documented: Any, module: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    [example] = doctest.DocTestFinder(recurse=False).find(
        documented, documented.__qualname__, globs=vars(module).copy()
    )
    assert example.examples, "the docstring has no example"
    report: list[str] = []
    assert doctest.DocTestRunner().run(example, out=report.append).failed == 0, "".join(report)
