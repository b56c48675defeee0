"""Small models as files, made for one purpose each, and what they must answer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

CLASSES = 3
FOREVER = 2**62


def weights(features: int) -> np.ndarray:
    """(features, CLASSES), seeded by how many there are."""
    return np.random.default_rng(features).normal(0, 1, (features, CLASSES)).astype(np.float32)


def dense(path: Path, shape: Sequence[int | str], *ends: str, dtype: str = "FLOAT", classes: int = CLASSES) -> Path:
    """An ONNX file: the input flattened, times `weights`, then the operators `ends`; `shape` with its batch.

    "Mix" takes the batch's mean away, so that a sample's answer depends on its neighbours.
    """
    from onnx import TensorProto, helper, numpy_helper

    size = int(np.prod([side for side in shape[1:] if isinstance(side, int)]))
    nodes = [
        helper.make_node("Cast", ["input"], ["cast"], to=TensorProto.FLOAT),
        helper.make_node("Flatten", ["cast"], ["flat"]),
        helper.make_node("MatMul", ["flat", "dense"], ["scores"]),
    ]
    for end in ends:
        last = nodes[-1].output[0]
        if end == "Mix":
            nodes.append(helper.make_node("ReduceMean", [last], ["mean"], axes=[0], keepdims=1))
            nodes.append(helper.make_node("Sub", [last, "mean"], ["mixed"]))
        else:
            nodes.append(helper.make_node(end, [last], [f"{end.lower()}-ed"]))
    source = helper.make_tensor_value_info("input", getattr(TensorProto, dtype), list(shape))
    result = helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, [shape[0], classes])
    return _write(path, nodes, [source], [result], [numpy_helper.from_array(weights(size)[:, :classes], "dense")])


def endless(path: Path) -> Path:
    """An ONNX file over 4 features that never answers."""
    from onnx import TensorProto, helper, numpy_helper

    def value(name: str, kind: int, shape: list[Any]) -> Any:
        return helper.make_tensor_value_info(name, kind, shape)

    body = helper.make_graph(
        [helper.make_node("Identity", ["on"], ["still"]), helper.make_node("Neg", ["x"], ["y"])],
        "body",
        [value("i", TensorProto.INT64, []), value("on", TensorProto.BOOL, []), value("x", TensorProto.FLOAT, ["n", 4])],
        [value("still", TensorProto.BOOL, []), value("y", TensorProto.FLOAT, ["n", 4])],
    )
    nodes = [
        helper.make_node("Loop", ["trips", "", "input"], ["turned"], body=body),
        helper.make_node("MatMul", ["turned", "dense"], ["scores"]),
    ]
    stored = [
        numpy_helper.from_array(np.array(FOREVER, np.int64), "trips"),
        numpy_helper.from_array(weights(4), "dense"),
    ]
    source = [value("input", TensorProto.FLOAT, ["n", 4])]
    return _write(path, nodes, source, [value("scores", TensorProto.FLOAT, ["n", CLASSES])], stored)


def ir(path: Path, model: Path) -> Path:
    """The ONNX file as OpenVINO's .xml and .bin."""
    import openvino

    openvino.save_model(openvino.convert_model(model), path, compress_to_fp16=False)
    return path


def _write(path: Path, nodes: list[Any], inputs: list[Any], outputs: list[Any], stored: list[Any]) -> Path:
    import onnx
    from onnx import helper

    graph = helper.make_graph(nodes, "made", inputs, outputs, stored)
    path.write_bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8).SerializeToString()
    )
    assert onnx.load(path).graph.node
    return path
