"""Networks timed as files made for that alone: one row each, in the given order."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from convert_runs import spec_of

from edgekit.measure import latency
from edgekit.measure.references import ReferenceFile, References
from edgekit.models import store
from edgekit.runner.backends.base import BaseBackend
from edgekit.targets.onnx import convert

CALIBRATION = np.random.default_rng(0).normal(size=(8, 12)).astype(np.float32)
EFFORT = {"rounds": 10, "calls_per_round": 5, "timeout_s": 240.0, "warmup_per_round": 1}


def save(folder: Path, builder: str, built_by: str = "") -> Path:
    store.save(folder, store.build(spec_of(built_by or builder, shape=(12,)), seed=1), spec_of(builder, shape=(12,)))
    return folder


def test_a_row_for_each_model_target_and_precision(tmp_path: Path) -> None:
    models = {"large": save(tmp_path / "large", "dense"), "small": save(tmp_path / "small", "dense")}
    rows, lost = latency.time_models(models, CALIBRATION, ["openvino", "onnx"], ["w8", "fp32"], **EFFORT)
    assert lost == []
    found = [(row.model, row.target, row.precision) for row in rows]
    of_each = [("openvino", "fp32"), ("openvino", "w8"), ("onnx", "fp32")]  # ONNX Runtime has no w8
    assert found == [(model, *rest) for model in models for rest in of_each]
    for row in rows:
        assert 0 < row.low_ms <= row.p50_ms <= row.high_ms
        assert len(row.round_p50s_ms) == EFFORT["rounds"] and row.bytes > 0
        assert "round_p50s_ms" not in row.row() and row.row()["p50_ms"] == row.p50_ms


def test_references_are_timed_in_the_same_rounds_each_with_its_own_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BaseBackend, "run", lambda *_: pytest.fail("a call that is timed made its input"))
    small, large = save(tmp_path / "small", "dense"), save(tmp_path / "large", "dense")
    [name] = convert.convert(large, "fp32", None, tmp_path / "theirs").names
    theirs = ReferenceFile(
        str(tmp_path / "theirs" / name), "onnx", [{"step": "scale", "factor": 0.5}], "classification", 10, ()
    )
    beside = References({"baseline": large}, {"theirs.onnx": theirs}, CALIBRATION[:1])
    rows, lost = latency.time_models(
        {"small": small}, CALIBRATION, ["onnx"], ["fp32", "int8"], references=beside, **EFFORT
    )
    assert lost == [] and beside.names == ["baseline", "theirs.onnx"]
    assert [(row.model, row.target, row.precision) for row in rows] == [
        ("small", "onnx", "fp32"),
        ("small", "onnx", "int8"),
        ("baseline", "onnx", "fp32"),
        ("theirs.onnx", "onnx", "as it is"),
    ]
    assert rows[3].bytes == rows[2].bytes and len(rows[3].round_p50s_ms) == EFFORT["rounds"]


def test_a_network_that_cannot_be_converted_is_lost_and_the_others_are_timed(tmp_path: Path) -> None:
    models = {"fine": save(tmp_path / "fine", "dense"), "odd one": save(tmp_path / "odd", "decomposing")}
    rows, lost = latency.time_models(models, CALIBRATION, ["onnx"], ["fp32", "int8"], **EFFORT)
    assert [(row.model, row.precision) for row in rows] == [("fine", "fp32"), ("fine", "int8")]
    first, rests = lost
    assert first.describe().startswith("odd one, onnx, fp32: ") and "svd" in first.reason
    assert rests.describe() == "odd one, onnx, int8: it is made from odd one-fp32-onnx, which was left out"


def test_where_nothing_can_be_converted_nothing_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = [latency.FailedFile("odd", "onnx", "fp32", "no such operator")]
    monkeypatch.setattr(latency, "convert_models", lambda *_: ({}, lost))
    assert latency.time_models({"odd": Path("odd")}, CALIBRATION, ["onnx"], ["fp32"], **EFFORT) == ([], lost)
