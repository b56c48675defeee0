"""Find redundant operators in a `.tflite` file. Each QUANTIZE and DEQUANTIZE inside the graph is executed."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgekit.targets.float_ops import main_graph_operators, module_name, tflite_operators
from edgekit.targets.redundant_ops import (
    GraphOperator,
    GraphTensor,
    OperatorGraph,
    RedundantOperator,
    Role,
    changes_memory_order,
    find_redundant,
)

ROLES: dict[str, Role] = {
    "TRANSPOSE": "transpose", "RESHAPE": "reshape", "SQUEEZE": "reshape", "EXPAND_DIMS": "reshape",
    "QUANTIZE": "quantize", "DEQUANTIZE": "dequantize", "CAST": "cast", "PAD": "pad", "PADV2": "pad",
    "MIRROR_PAD": "pad", "BROADCAST_TO": "broadcast", "TILE": "broadcast", "SHAPE": "shape",
}  # fmt: skip
NEUTRAL = {"ADD": 0.0, "SUB": 0.0, "MUL": 1.0, "DIV": 1.0}
SHAPE_CHANGING = ("SLICE", "STRIDED_SLICE", "PAD", "PADV2")  # redundant if the shape stays the same
CONVOLUTIONS = ("CONV_2D", "DEPTHWISE_CONV_2D")
NUMPY = {"FLOAT32": np.float32, "FLOAT16": np.float16, "INT32": np.int32, "INT64": np.int64, "INT8": np.int8,
         "UINT8": np.uint8, "INT16": np.int16, "BOOL": np.bool_}  # fmt: skip


def read(content: bytes, named: bytes | None = None) -> tuple[RedundantOperator, ...]:
    """Find the redundant operators; `named` is the same model before `rewrites.strip_names` removed inner names."""
    return find_redundant(_graph(content, named or content))


def _graph(content: bytes, named: bytes) -> OperatorGraph:
    """Return the main graph, without those that loops and conditions call."""
    entries, named_entries = (main_graph_operators(tflite_operators(each)) for each in (content, named))
    model, graph = entries[0][:2]
    tensors: dict[Any, GraphTensor] = {index: _tensor(model, tensor) for index, tensor in enumerate(graph.tensors)}
    consumers: dict[int, list[Any]] = {}
    for entry in entries:
        for index in entry[2].inputs:
            consumers.setdefault(int(index), []).append(entry)
    operators = []
    for number, ((_, _, op, kind), (_, named_graph, _, _)) in enumerate(zip(entries, named_entries, strict=True)):
        name = named_graph.tensors[op.outputs[0]].name
        layer = module_name(name.decode()) if name else f"{kind} {number}"
        operators.append(_operator(op, kind, layer, tensors, consumers))
    inputs, outputs = (tuple(int(index) for index in side) for side in (graph.inputs, graph.outputs))
    return OperatorGraph(operators, tensors, inputs, outputs)


def _tensor(model: Any, tensor: Any) -> GraphTensor:
    from ai_edge_litert import schema_py_generated as schema

    types = {value: name for name, value in vars(schema.TensorType).items() if not name.startswith("_")}
    dtype = types[tensor.type]
    shape = tuple(int(side) for side in tensor.shape) if tensor.shape is not None else ()
    item = np.dtype(NUMPY[dtype]).itemsize if dtype in NUMPY else 0
    data = model.buffers[tensor.buffer].data
    if data is None or not len(data):
        return GraphTensor(shape, int(np.prod(shape)) * item, dtype)
    data = np.asarray(data)
    value = data.view(NUMPY[dtype]) if item and len(data) % item == 0 else data
    # two buffers may refer to the same vector of the file
    return GraphTensor(shape, data.nbytes, dtype, value, data.__array_interface__["data"][0])


def _operator(
    op: Any, kind: str, layer: str, tensors: dict[Any, GraphTensor], consumers: dict[int, list[Any]]
) -> GraphOperator:
    inputs, outputs = (tuple(int(index) for index in side if index >= 0) for side in (op.inputs, op.outputs))
    role = ROLES.get(kind, "compute")
    shape = tensors[inputs[0]].shape if inputs else ()
    alone = kind == "CONCATENATION" and len(inputs) == 1
    if alone or (kind in SHAPE_CHANGING and shape == tensors[outputs[0]].shape):
        role = "identity"
    order = tensors[inputs[1]].value if role == "transpose" else None
    return GraphOperator(
        role,
        kind,
        layer,
        inputs,
        outputs,
        role == "transpose" and (order is None or changes_memory_order(range(len(order)), order.tolist(), shape)),
        role == "pad" and _absorbable(kind, inputs, consumers.get(outputs[0], []), tensors),
        kind in NEUTRAL,
        NEUTRAL.get(kind),
    )


def _absorbable(kind: str, inputs: tuple[int, ...], consumers: list[Any], tensors: dict[Any, GraphTensor]) -> bool:
    """Return whether the convolution after a pad would pad by the same amounts if its padding were SAME.

    The format has no other kind of padding for convolutions.
    """
    from ai_edge_litert import schema_py_generated as schema

    table = tensors[inputs[1]].value
    if kind != "PAD" or table is None or len(consumers) != 1 or consumers[0][3] not in CONVOLUTIONS:
        return False
    consumer, options = consumers[0][2], consumers[0][2].builtinOptions
    if options.padding != schema.Padding.VALID:
        return False
    sides, kernel = tensors[inputs[0]].shape[1:3], tensors[int(consumer.inputs[1])].shape[1:3]
    strides, dilations = (options.strideH, options.strideW), (options.dilationHFactor, options.dilationWFactor)
    same = [_same_padding(*sizes) for sizes in zip(sides, kernel, strides, dilations, strict=True)]
    return bool(np.reshape(table, (-1, 2)).tolist() == [[0, 0], *same, [0, 0]])


def _same_padding(size: int, kernel: int, stride: int, dilation: int) -> list[int]:
    """Return how much SAME pads before and after, by TensorFlow's definition."""
    total = max((-(-size // stride) - 1) * stride + (kernel - 1) * dilation + 1 - size, 0)
    return [total // 2, total - total // 2]
