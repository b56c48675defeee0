"""Append a non-maximum suppression to a detector in ONNX, as exporters do with `nms=True`."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tests.models.files.detector_heads import CLASSES

MOST = 30


def with_suppression(content: bytes, least: float, overlap: float = 0.5) -> bytes:
    """The file with one output (1, 30, 6): corners, score and class of the boxes that remain, filled up with zeros.

    The detector gives centres and sizes and probabilities, (1, 4 + classes, points).
    """
    model = onnx.load_model_from_string(content)
    graph = model.graph
    source = graph.output[0].name
    del graph.output[:]
    constants = {
        "nms_parts": np.array([4, CLASSES], dtype=np.int64),
        "nms_halves": np.array([2, 2], dtype=np.int64),
        "nms_half": np.array(0.5, dtype=np.float32),
        "nms_most": np.array([MOST], dtype=np.int64),
        "nms_overlap": np.array([overlap], dtype=np.float32),
        "nms_least": np.array([least], dtype=np.float32),
        "nms_0": np.array([0], dtype=np.int64),
        "nms_1": np.array([1], dtype=np.int64),
        "nms_2": np.array([2], dtype=np.int64),
        "nms_none": np.zeros((MOST, 6), dtype=np.float32),
    }
    graph.initializer.extend(numpy_helper.from_array(values, name) for name, values in constants.items())

    def node(operator: str, inputs: str, outputs: str, **attributes: int | list[int]) -> None:
        names = [[f"nms_{name}" if name != source else name for name in each.split()] for each in (inputs, outputs)]
        graph.node.append(helper.make_node(operator, *names, **attributes))

    node("Split", f"{source} parts", "sides scores", axis=1)
    node("Transpose", "sides", "rows", perm=[0, 2, 1])
    node("Split", "rows halves", "middle size", axis=2)
    node("Mul", "size half", "reach")
    node("Sub", "middle reach", "start")
    node("Add", "middle reach", "end")
    node("Concat", "start end", "corners", axis=2)
    node("NonMaxSuppression", "corners scores most overlap least", "selected")
    node("Gather", "selected 1", "kind", axis=1)
    node("Gather", "selected 2", "place", axis=1)
    node("Squeeze", "place 1", "index")
    node("Squeeze", "corners 0", "table")
    node("Gather", "table index", "boxes", axis=0)
    node("GatherND", "scores selected", "score")
    node("Unsqueeze", "score 1", "score_column")
    node("Cast", "kind", "kind_column", to=onnx.TensorProto.FLOAT)
    node("Concat", "boxes score_column kind_column", "found", axis=1)
    node("Concat", "found none", "filled", axis=0)
    node("Slice", "filled 0 most 0", "first")
    node("Unsqueeze", "first 0", "finished")
    graph.output.append(helper.make_tensor_value_info("nms_finished", onnx.TensorProto.FLOAT, [1, MOST, 6]))
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())
