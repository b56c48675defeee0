"""Small ONNX models as ONNX Runtime runs them."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from edgekit.runner.backends import onnxruntime as runner


def run(content: bytes, x: np.ndarray) -> np.ndarray:
    """The only output for the only input."""
    session = runner.session(content, _options())
    found: np.ndarray = session.run(None, {session.get_inputs()[0].name: x})[0]
    return found


def with_choice(content: bytes, name: str) -> bytes:
    """The model with an If whose branches take that tensor and a constant of the outer graph: a second output."""
    model = onnx.load_model_from_string(content)
    graph = model.graph
    for called, value in (("three", np.float32(3)), ("yes", np.array(True))):
        graph.initializer.append(numpy_helper.from_array(np.asarray(value), called))
    branches = {
        f"{way}_branch": helper.make_graph(
            [helper.make_node(kind, [name, "three"], [way])],
            way,
            [],
            [helper.make_tensor_value_info(way, TensorProto.FLOAT, None)],
        )
        for way, kind in (("then", "Add"), ("else", "Sub"))
    }
    graph.node.append(helper.make_node("If", ["yes"], ["chosen"], **branches))
    graph.output.append(helper.make_tensor_value_info("chosen", TensorProto.FLOAT, None))
    return bytes(model.SerializeToString())


def kinds_run(content: bytes) -> list[str]:
    """The operators that are left when it has optimised the graph."""
    with tempfile.TemporaryDirectory() as folder:
        options = _options()
        options.optimized_model_filepath = str(Path(folder) / "optimised.onnx")
        runner.session(content, options)
        return [node.op_type for node in onnx.load(options.optimized_model_filepath).graph.node]


def _options() -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return options
