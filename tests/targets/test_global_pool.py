"""A mean over height and width becomes a pool that ONNX Runtime computes in integers, and stays within a level."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgekit.targets.onnx import rewrites
from tests.targets.onnx_runs import kinds_run, run, with_choice

SCALE = np.float32(0.05)


def quantized(axes: tuple[int, ...] = (2, 3), keepdims: int | None = 1, behind: str = "QuantizeLinear") -> bytes:
    """A mean between scales; `behind` is what takes it."""
    constants: dict[str, Any] = {
        "scale": SCALE,
        "zero": np.array(128, np.uint8),
        "axes": np.array(axes, dtype=np.int64),
        "flat": np.array([1, 8], dtype=np.int64),
    }
    options = {} if keepdims is None else {"keepdims": keepdims}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["d"]),
        helper.make_node("ReduceMean", ["d", "axes"], ["m"], name="mean", **options),
    ]
    if behind == "Reshape":
        nodes.append(helper.make_node("Reshape", ["m", "flat"], ["f"]))
    if behind in ("QuantizeLinear", "Reshape"):
        taken = "f" if behind == "Reshape" else "m"
        nodes.append(helper.make_node("QuantizeLinear", [taken, "scale", "zero"], ["r"]))
        nodes.append(helper.make_node("DequantizeLinear", ["r", "scale", "zero"], ["y"]))
    else:
        nodes.append(helper.make_node(behind, ["m"], ["y"]))
    ends = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8, 5, 5])]
    made = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    stored = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "one", ends, made, stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return bytes(model.SerializeToString())


@pytest.mark.parametrize("axes", [(2, 3), (-1, -2), (3, 2)])
@pytest.mark.parametrize("behind", ["QuantizeLinear", "Reshape"])
def test_answers_stay_within_a_level(axes: tuple[int, ...], behind: str) -> None:
    before = quantized(axes, 1 if behind == "Reshape" else None, behind)
    after = rewrites.rename_global_pools(before)
    x = np.random.default_rng(0).normal(size=(1, 8, 5, 5)).astype(np.float32)
    one, other = run(before, x), run(after, x)
    assert one.shape == other.shape == ((1, 8) if behind == "Reshape" else (1, 8, 1, 1))
    assert np.abs(one - other).max() <= SCALE * 1.001
    assert "QLinearGlobalAveragePool" in kinds_run(after) and "ReduceMean" in kinds_run(before)
    assert len(after) < len(before) and rewrites.rename_global_pools(after) == after  # its axes go


@pytest.mark.parametrize(
    "options",
    [{"axes": (1, 2)}, {"axes": (2,)}, {"keepdims": 0}, {"behind": "Relu"}],
    ids=["other axes", "one axis", "sides go", "a float layer behind"],
)
def test_other_means_stay(options: dict[str, Any]) -> None:
    content = quantized(**options)
    assert rewrites.rename_global_pools(content) == content


def test_constants_of_inner_graphs_stay() -> None:
    content = with_choice(quantized(), "y")
    after = rewrites.rename_global_pools(content)
    assert after != content
    x = np.random.default_rng(0).normal(size=(1, 8, 5, 5)).astype(np.float32)
    assert np.abs(run(content, x) - run(after, x)).max() <= SCALE * 1.001
