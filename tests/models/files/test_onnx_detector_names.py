"""A detector whose own outputs are called boxes and scores, as those of the cut file are."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from edgekit.models.files import published_detector
from edgekit.models.files.task_outputs import TaskOutputs
from edgekit.runner.boxes import grid_centres

SIDE, CLASSES = 32, 3
POINTS = 4 * 4 + 2 * 2


def decoding_model() -> bytes:
    """Distances of a dense layer, decoded to corners in pixels, and probabilities."""
    import onnx
    from onnx import helper, numpy_helper

    random = np.random.default_rng(3)
    centres, strides = grid_centres((SIDE, SIDE), POINTS)
    arrays = {
        "first_w": np.abs(random.normal(0, 1, (3, POINTS * 4))).astype(np.float32),
        "first_shape": np.array([1, POINTS, 4]),
        "second_w": random.normal(0, 2, (3, POINTS * CLASSES)).astype(np.float32),
        "second_shape": np.array([1, POINTS, CLASSES]),
        "signs": strides * np.array([-1, -1, 1, 1], dtype=np.float32), "places": np.tile(centres, 2),
    }  # fmt: skip
    nodes = [helper.make_node("ReduceMean", ["images"], ["means"], axes=[2, 3], keepdims=0)]
    for name in ("first", "second"):
        nodes.append(helper.make_node("MatMul", ["means", f"{name}_w"], [f"{name}_flat"]))
        nodes.append(helper.make_node("Reshape", [f"{name}_flat", f"{name}_shape"], [name]))
    nodes.append(helper.make_node("Mul", ["first", "signs"], ["reaches"]))
    nodes.append(helper.make_node("Add", ["reaches", "places"], ["boxes"]))
    nodes.append(helper.make_node("Sigmoid", ["second"], ["scores"]))
    ends = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        for name, shape in (
            ("images", (1, 3, SIDE, SIDE)), ("boxes", (1, POINTS, 4)), ("scores", (1, POINTS, CLASSES)),
        )
    ]  # fmt: skip
    graph = helper.make_graph(
        nodes, "named", ends[:1], ends[1:], [numpy_helper.from_array(each, name) for name, each in arrays.items()]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    return bytes(model.SerializeToString())


def test_the_cut_file_has_each_name_once_and_gives_distances_and_logits(tmp_path: Path) -> None:
    import onnxruntime

    path = tmp_path / "named.onnx"
    path.write_bytes(decoding_model())
    found = published_detector.read(path, "onnx", TaskOutputs(CLASSES, "detection", (SIDE, SIDE)))
    assert found is not None and found.content is not None and found.head is None
    image = np.random.default_rng(1).random((1, 3, SIDE, SIDE), dtype=np.float32)
    distances, logits = onnxruntime.InferenceSession(found.content).run(None, {"images": image})
    corners, scores = onnxruntime.InferenceSession(path).run(None, {"images": image})
    centres, strides = grid_centres((SIDE, SIDE), POINTS)
    reaches = distances[0] * strides * [-1, -1, 1, 1]
    np.testing.assert_allclose(np.tile(centres, 2) + reaches, corners[0], atol=1e-3)
    np.testing.assert_allclose(1 / (1 + np.exp(-logits)), scores, atol=1e-5)
