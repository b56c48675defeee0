"""The answers of an int8 ONNX file are not rounded to levels once more, and its dense layer stays in integers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgekit.targets import evaluate
from edgekit.targets.onnx import convert, rewrites
from tests.targets.onnx_runs import kinds_run, run, with_choice

LEVEL = np.float32(0.1)


def quantized(kind: str = "Gemm", also: str = "", floats: bool = False) -> bytes:
    """A layer of int8 weights, its answers in levels; `also`: who else takes them; `floats`: weights as they are."""
    random = np.random.default_rng(0)
    constants: dict[str, Any] = {
        "scale": np.float32(0.03),
        "zero": np.array(128, np.uint8),
        "level": LEVEL,
        "weights": random.integers(-100, 100, (8, 5)).astype(np.int8),
        "fine": np.float32(0.01),
        "none": np.array(0, np.int8),
        "raw": random.normal(size=(8, 5)).astype(np.float32),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["d"]),
        helper.make_node("DequantizeLinear", ["weights", "fine", "none"], ["w"]),
        helper.make_node(kind, ["d", "raw" if floats else "w"], ["g"]),
        helper.make_node("QuantizeLinear", ["g", "level", "zero"], ["r"]),
        helper.make_node("DequantizeLinear", ["r", "level", "zero"], ["y"]),
    ]
    made = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    if also:
        nodes.append(helper.make_node("Neg", [also], ["z"]))
        made.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, None))
    ends = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8])]
    stored = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "one", ends, made, stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return bytes(model.SerializeToString())


def test_answers_are_what_the_levels_were_made_of() -> None:
    before = quantized()
    after = rewrites.keep_float_answers(before)
    x = np.random.default_rng(1).normal(size=(1, 8)).astype(np.float32)
    one, other = run(before, x), run(after, x)
    assert np.abs(one - other).max() <= LEVEL * 0.501 and np.abs(one - other).max() > 0
    assert "QGemm" in kinds_run(after) and "Gemm" not in kinds_run(after)
    assert len(after) < len(before) and rewrites.keep_float_answers(after) == after


@pytest.mark.parametrize(
    "options",
    [{"kind": "MatMul"}, {"also": "g"}, {"also": "y"}, {"floats": True}],
    ids=["no kernel", "the sums are taken", "the levels are taken", "float weights"],
)
def test_other_answers_stay(options: dict[str, Any]) -> None:
    content = quantized(**options)
    assert rewrites.keep_float_answers(content) == content


def test_answers_that_an_inner_graph_takes_stay() -> None:
    content = with_choice(quantized(), "y")
    assert rewrites.keep_float_answers(content) == content


def test_constants_of_inner_graphs_stay() -> None:
    content = with_choice(quantized(), "x")
    after = rewrites.keep_float_answers(content)
    x = np.random.default_rng(1).normal(size=(1, 8)).astype(np.float32)
    assert after != content and np.abs(run(content, x) - run(after, x)).max() <= LEVEL * 0.501


def test_a_network_is_nearer_to_its_float_self(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = np.random.default_rng(0).normal(size=(60, 3, 8, 8)).astype(np.float32)
    files = convert.convert(tiny_folder, "int8", inputs, tmp_path / "fine")
    monkeypatch.setattr(rewrites, "keep_float_answers", lambda content: content)
    assert convert.convert(tiny_folder, "int8", inputs, tmp_path / "levels") == files
    expected = evaluate.torch_outputs(tiny_folder, inputs)
    fine, levels = (evaluate.file_outputs("it", "onnx", tmp_path / name, files, inputs) for name in ("fine", "levels"))
    assert np.square(fine - expected).sum() < np.square(levels - expected).sum()
    assert len(np.unique(fine)) > len(np.unique(levels))
