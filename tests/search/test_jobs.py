"""The jobs of a search hold the lane while they compute; test_search.py runs all of them for real."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgekit.measure import lane
from edgekit.search import jobs
from tests.conftest import TINY


def test_networks_are_built_and_pruned_on_the_lane(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(lane.FOLDER_VARIABLE, str(tmp_path / "lane"))
    result = jobs.measure_shapes(str(TINY), {"0": [], "1": ["distill.student.kwargs.width=-1"]})
    assert result["0"]["size"]["parameters"] > 0 and "failed" in result["1"]
    assert [hold.kind for hold in lane.read_holds(tmp_path / "lane")] == ["computing"]
