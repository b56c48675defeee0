"""Decisions to follow: by stage, in exactly the shape that the stages leave."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgekit.core import replay
from edgekit.core.errors import TrustError

BENCHMARK: dict[str, Any] = {
    name: {"onnx": "a"} if kind is dict else [] for name, kind in replay.DECISION_FIELDS["benchmark"].items()
}
DISTILL = {"in_time": ["a", "b"], "trained": ["a"]}


def test_each_stage_hears_its_own(tmp_path: Path) -> None:
    assert replay.read(tmp_path, "distill") is None
    replay.write(tmp_path, {"benchmark": BENCHMARK, "distill": DISTILL})
    assert replay.read(tmp_path, "distill") == DISTILL
    assert replay.read(tmp_path, "benchmark") == BENCHMARK
    assert replay.read(tmp_path, "prune") is None


def test_a_bundle_of_a_run_without_candidates_leaves_distill_free(tmp_path: Path) -> None:
    replay.write(tmp_path, {"benchmark": BENCHMARK})
    assert replay.read(tmp_path, "distill") is None


@pytest.mark.parametrize(
    "other",
    [
        {},
        {"winners": {}, "too_slow": []},  # as an older edgekit recorded them, without a stage
        {"benchmark": BENCHMARK, "prune": {}},
        {"benchmark": {**BENCHMARK, "more": []}},
        {"distill": {"in_time": ["a"]}},
        {"distill": {"in_time": "a", "trained": ["a"]}},
        {"distill": None},
        ["distill"],
    ],
)
def test_any_other_shape_is_refused(tmp_path: Path, other: Any) -> None:
    replay.write(tmp_path, other)
    with pytest.raises(TrustError, match="not a record of decisions"):
        replay.read(tmp_path, "benchmark")


def test_a_torn_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / replay.FILE).write_text('{"benchmark": {')
    with pytest.raises(TrustError, match="remove it"):
        replay.read_all(tmp_path)
