"""ONNX files with a free batch: valid ones, and one that is wrong only in batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .conftest import NCHW, SCORES, ModelFiles, onnx_model


def onnx_with(change: Callable[[Any], None] = lambda graph: None, batch: str | int = "batch") -> ModelFiles:
    """The tiny network with its batch as named, and its graph changed."""
    import onnx

    model = onnx.load_from_string(onnx_model())
    change(model.graph)
    for port in (model.graph.input[0], model.graph.output[0]):
        side = port.type.tensor_type.shape.dim[0]
        if isinstance(batch, str):
            side.dim_param = batch
        else:
            side.dim_value = batch
    return ModelFiles("onnx", {"model.onnx": model.SerializeToString()}, NCHW, SCORES, 1e-4)


def reshaped(graph: Any) -> None:
    """The mean flattened by a reshape that holds the batch of 1, as exporters write it."""
    from onnx import helper, numpy_helper

    graph.initializer.append(numpy_helper.from_array(np.array([1, 4], dtype=np.int64), "sizes"))
    graph.node.insert(3, helper.make_node("Reshape", ["mean", "sizes"], ["flat"]))
    graph.node[4].input[0] = "flat"


def reversed_order(graph: Any) -> None:
    """The scores of a batch in reversed order."""
    from onnx import helper, numpy_helper

    for name, value in (("from", -1), ("to", -(2**31)), ("axis", 0), ("by", -1)):
        graph.initializer.append(numpy_helper.from_array(np.array([value], dtype=np.int64), name))
    graph.node[3].output[0] = "in_order"
    graph.node.append(helper.make_node("Slice", ["in_order", "from", "to", "axis", "by"], ["scores"]))


def of_neighbours(graph: Any) -> None:
    """Scores that rise by 0.5 with each further sample in the call."""
    from onnx import helper, numpy_helper

    for name, value in (("zero", np.int64(0)), ("half", np.float32(0.5))):
        graph.initializer.append(numpy_helper.from_array(np.array(value), name))
    graph.node[3].output[0] = "own"
    graph.node.extend([
        helper.make_node("Shape", ["own"], ["sizes"]),
        helper.make_node("Gather", ["sizes", "zero"], ["count"]),
        helper.make_node("Cast", ["count"], ["samples"], to=1),
        helper.make_node("Mul", ["samples", "half"], ["risen"]),
        helper.make_node("Add", ["own", "risen"], ["more"]),
        helper.make_node("Sub", ["more", "half"], ["scores"]),
    ])  # fmt: skip
