"""Operators of converted networks, timed by each interpreter's own profiler: contract over every target."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgekit.config import TARGETS
from edgekit.errors import ConversionError
from edgekit.models import store
from edgekit.targets import operators, timed

X = np.random.default_rng(0).normal(size=(4, 3, 16, 16)).astype(np.float32)
CONVOLUTION = {"tflite": "Convolution", "openvino": "Convolution", "onnx": "Conv"}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, timed.Converted]:
    home = tmp_path_factory.mktemp("operators")
    spec = store.ModelSpec(
        builder="edgekit.models.resnet:resnet8",
        kwargs={"width": 8},
        input_shape=(3, 16, 16),
        num_classes=4,
        classes=("a", "b", "c", "d"),
        raw={"kind": "image", "shape": [16, 16, 3], "dtype": "uint8"},
    )
    store.save(home / "model", store.build(spec), spec)
    found = timed.convert_plainly({"net": home / "model"}, X, TARGETS, ["fp32", "int8"], home, 600)
    return {f"{one.job.target}-{one.step.precision}": one for one in found.values()}


@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("target", TARGETS)
def test_the_convolutions_are_there(made: dict[str, timed.Converted], target: str, precision: str) -> None:
    one = made[f"{target}-{precision}"]
    rows = operators.measure(target, one.step.out, one.files, one.as_input(X[:1]), 25, 300)
    assert sum(row["share"] for row in rows) == pytest.approx(1)
    assert [row["self_ms"] for row in rows] == sorted((row["self_ms"] for row in rows), reverse=True)
    kinds = {row["operator"]: row["calls"] for row in rows}
    wanted = "QLinearConv" if (target, precision) == ("onnx", "int8") else CONVOLUTION[target]
    convolutions = sum(count for kind, count in kinds.items() if wanted in kind)
    assert 8 <= convolutions <= 9, kinds


def test_a_file_that_no_interpreter_opens_is_one_line(made: dict[str, timed.Converted], tmp_path: Path) -> None:
    one = made["tflite-fp32"]
    for name in one.files.names:
        (tmp_path / name).write_bytes(b"not a model" * 100)
    with pytest.raises(ConversionError, match="tflite: its operators cannot be timed") as caught:
        operators.measure("tflite", tmp_path, one.files, one.as_input(X[:1]), 5, 300)
    assert "\n" not in str(caught.value)


def test_operators_of_one_kind_stand_together() -> None:
    rows = [{"operator": "a", "self_ms": 1.0}, {"operator": "b", "self_ms": 3.0}, {"operator": "a", "self_ms": 4.0}]
    assert operators.by_kind(rows) == [
        {"operator": "a", "calls": 2, "self_ms": 5.0, "share": 0.625},
        {"operator": "b", "calls": 1, "self_ms": 3.0, "share": 0.375},
    ]
