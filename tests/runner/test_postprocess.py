"""What the outputs mean: every file of `edgekit/runner/postprocess/`, on real models."""

from __future__ import annotations

import importlib
import json
import pkgutil
from typing import Any

import numpy as np
import pytest

from edgekit.runner import load, postprocess
from edgekit.runner.cli import main
from edgekit.runner.manifest import RawSpec, TensorSpec
from edgekit.runner.rules import TASKS

from .conftest import Made, WriteBundle

X = np.array([0.7, 0.2, 0.1], np.float32)
GOLDEN = {"inputs": "golden/inputs.npy", "outputs": "golden/outputs.npy", "atol": 1e-5, "top1": False}


def scaled(shape: tuple[int, ...], factor: float) -> Made:
    """A network that multiplies three numbers by `factor`, its output shaped (1, *shape)."""
    import onnx
    from onnx import helper, numpy_helper

    source = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, (1, 3))
    result = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, (1, *shape))
    constants = [
        numpy_helper.from_array(np.array([factor], np.float32), "factor"),
        numpy_helper.from_array(np.array((1, *shape), np.int64), "shape"),
    ]
    nodes = [helper.make_node("Mul", ["x", "factor"], ["z"]), helper.make_node("Reshape", ["z", "shape"], ["y"])]
    graph = helper.make_graph(nodes, "scaled", [source], [result], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    layout = "NC" if len(shape) == 1 else "ANY"
    specs = TensorSpec("x", (1, 3), "float32", "NC"), TensorSpec("y", (1, *shape), "float32", layout)
    return Made("onnx", {"model.onnx": model.SerializeToString()}, *specs, 1e-5)


def opened(write_bundle: WriteBundle, shape: tuple[int, ...] = (3,), factor: float = 1.0, **changes: Any) -> Any:
    raw = RawSpec("vector", (3,), "float32", (0.0, 1.0))
    fields = {"raw": raw, "preprocess": [], "golden": GOLDEN, **changes}
    path = write_bundle(scaled(shape, factor), X[None], (factor * X).reshape(1, *shape), **fields)
    return path, load(path, trial=False)


def test_every_task_has_a_file_and_every_file_is_a_task() -> None:
    assert {found.name for found in pkgutil.iter_modules(postprocess.__path__)} == set(TASKS)
    for task in TASKS:
        assert callable(importlib.import_module(f"edgekit.runner.postprocess.{task}").maker)


def test_probabilities_are_left_as_they_are_and_logits_become_some(write_bundle: WriteBundle) -> None:
    _, model = opened(write_bundle, activation="none")
    assert [share for _, share in model.predict(X).top] == pytest.approx([0.7, 0.2, 0.1])
    _, model = opened(write_bundle, activation="softmax")
    exact = np.exp(X) / np.exp(X).sum()
    assert [share for _, share in model.predict(X).top] == pytest.approx(exact.tolist())


def test_a_regression_gives_named_values(
    write_bundle: WriteBundle, capsys: pytest.CaptureFixture[str], tmp_path: Any
) -> None:
    names = ["width_mm", "height_mm", "mass_g"]
    path, model = opened(write_bundle, factor=10.0, task="regression", activation="none", labels=names)
    assert model.predict(X).values == pytest.approx(dict(zip(names, [7.0, 2.0, 1.0], strict=True)))
    assert model.selftest().ok
    np.save(tmp_path / "x.npy", X)
    assert main(["predict", str(path), str(tmp_path / "x.npy"), "--no-trial"]) == 0
    assert "height_mm  2" in capsys.readouterr().out
    assert main(["predict", str(path), str(tmp_path / "x.npy"), "--no-trial", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["values"]["mass_g"] == pytest.approx(1.0)


def test_a_raw_output_keeps_its_shape(
    write_bundle: WriteBundle, capsys: pytest.CaptureFixture[str], tmp_path: Any
) -> None:
    path, model = opened(write_bundle, shape=(3, 1), factor=2.0, task="raw", activation="none", labels=[])
    assert model.predict(X).output.shape == (3, 1)
    np.save(tmp_path / "x.npy", X)
    assert main(["predict", str(path), str(tmp_path / "x.npy"), "--no-trial", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["shape"] == [3, 1] and np.array(found["output"]).ravel() == pytest.approx([1.4, 0.4, 0.2])
    assert main(["predict", str(path), str(tmp_path / "x.npy"), "--no-trial"]) == 0
    assert "float32[3, 1], from 0.2 to 1.4" in capsys.readouterr().out
