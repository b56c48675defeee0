"""What a model of another framework costs, against sums done by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import openvino as ov
import pytest
from onnx import TensorProto, helper, numpy_helper
from openvino import op
from openvino import opset13 as ops

from edgekit.models.files import op_count

TIME, FEATURES, HIDDEN = 7, 5, 4
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
BY_HAND = {gates: TIME * gates * HIDDEN * (FEATURES + HIDDEN) for gates in GATES.values()}


@pytest.mark.parametrize("layer", GATES)
def test_a_recurrent_layer_of_onnx(layer: str, tmp_path: Path) -> None:
    path = tmp_path / "recurrent.onnx"
    onnx.save(_recurrent(layer, GATES[layer]), path)
    found = op_count.count_file(path, "onnx")
    assert found.macs == BY_HAND[GATES[layer]]
    assert found.parameters >= GATES[layer] * HIDDEN * (FEATURES + HIDDEN)


def test_what_a_loop_does_counts_as_often_as_it_turns_and_its_weights_once() -> None:
    step = ops.parameter([1, 1, FEATURES], np.float32)
    weights = ops.constant(np.ones((FEATURES, HIDDEN), np.float32))
    product = ops.matmul(step, weights, False, False)
    body = ov.Model([ops.result(product)], [step], "body")
    whole = ops.parameter([1, TIME, FEATURES], np.float32)
    loop = op.tensor_iterator()
    loop.set_body(body)
    loop.set_sliced_input(step, whole.output(0), 0, 1, 1, -1, 1)
    joined = loop.get_concatenated_slices(body.results[0].output(0), 0, 1, 1, -1, 1)
    found = op_count.count_graph(ov.Model([ops.result(joined)], [whole], "loop"))
    assert found == op_count.OpCount(FEATURES * HIDDEN, TIME * FEATURES * HIDDEN, 4 * FEATURES * HIDDEN)


def _recurrent(layer: str, gates: int) -> onnx.ModelProto:
    generator = np.random.default_rng(0)

    def weights(name: str, *shape: int) -> onnx.TensorProto:
        return numpy_helper.from_array(generator.standard_normal(shape).astype(np.float32), name)

    made = [weights("W", 1, gates * HIDDEN, FEATURES), weights("R", 1, gates * HIDDEN, HIDDEN)]
    node = helper.make_node(layer, ["x", "W", "R"], ["y"], hidden_size=HIDDEN)
    graph = helper.make_graph(
        [node],
        "recurrent",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [TIME, 1, FEATURES])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [TIME, 1, 1, HIDDEN])],
        made,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
