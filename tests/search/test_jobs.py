"""What the processes of a search compute, they compute on the lane; test_search.py does all works for real."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgekit.measure import lane
from edgekit.search import jobs
from tests.conftest import TINY


def test_networks_are_built_and_pruned_on_the_lane(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(lane.FOLDER_VARIABLE, str(tmp_path / "lane"))
    found = jobs.measure_shapes(str(TINY), {"0": [], "1": ["distill.student.kwargs.width=-1"]})
    assert found["0"]["size"]["parameters"] > 0 and "failed" in found["1"]
    assert [hold.kind for hold in lane.read_holds(tmp_path / "lane")] == ["computing"]
