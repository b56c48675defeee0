"""A run of one config takes the lane of its machine, as workers do."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from edgekit.measure import lane
from edgekit.workbook.plan import load_plan
from edgekit.workbook.run import run
from tests.conftest import TINY


class _Heard(Exception):
    """Ends a run at the first line that it says."""


@pytest.mark.parametrize("names", [True, False])
def test_a_run_of_one_config_measures_on_the_lane_that_is_named_or_on_that_of_the_machine(
    names: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = str(tmp_path / "lane") if names else None
    if before is None:
        monkeypatch.delenv(lane.FOLDER_VARIABLE)
    else:
        monkeypatch.setenv(lane.FOLDER_VARIABLE, before)
    result: list[str | None] = []

    def say(line: str) -> None:
        result.append(os.environ.get(lane.FOLDER_VARIABLE))  # what the kernels get
        raise _Heard

    with pytest.raises(_Heard):
        run(load_plan(TINY), tmp_path / "out", force=["profile"], say=say)  # a line before the first notebook
    assert result == [before or str(lane.machine_folder())]
    assert os.environ.get(lane.FOLDER_VARIABLE) == before
