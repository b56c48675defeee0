"""Find redundant operators in an ONNX file.

A pair of QuantizeLinear and DequantizeLinear only marks quantized values, but a second pair right after it is executed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from edgekit.targets.float_ops import ONNX_WEIGHTED
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
    "Transpose": "transpose", "Reshape": "reshape", "Squeeze": "reshape", "Unsqueeze": "reshape", "Flatten": "reshape",
    "QuantizeLinear": "quantize", "DequantizeLinear": "dequantize", "Cast": "cast", "Identity": "identity",
    "Dropout": "identity", "Pad": "pad", "Expand": "broadcast", "Tile": "broadcast", "Shape": "shape", "Size": "shape",
}  # fmt: skip
NEUTRAL = {"Add": 0.0, "Sub": 0.0, "Mul": 1.0, "Div": 1.0}
SHAPE_CHANGING = ("Slice", "Pad", "Expand", "Tile")  # redundant if the output has the shape of the input


def read(content: bytes) -> tuple[RedundantOperator, ...]:
    """Find the redundant operators of a file; ONNX Runtime may remove some of them when it opens the model."""
    return find_redundant(_graph(content))


def _graph(content: bytes) -> OperatorGraph:
    import onnx
    from onnx import numpy_helper

    graph = onnx.shape_inference.infer_shapes(onnx.load_from_string(content)).graph
    tensors = {one.name: _tensor(one.type.tensor_type) for one in (*graph.input, *graph.value_info, *graph.output)}
    constants = {one.name: numpy_helper.to_array(one) for one in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            constants[node.output[0]] = numpy_helper.to_array(node.attribute[0].t)
    for name, value in constants.items():
        tensors[name] = GraphTensor(value.shape, value.nbytes, value.dtype.name, value, name)
    consumers: dict[str, list[Any]] = {}
    for node in graph.node:
        for name in node.input:
            consumers.setdefault(name, []).append(node)
    operators = [_operator(node, tensors, consumers) for node in graph.node if node.op_type != "Constant"]
    inputs = tuple(one.name for one in graph.input if one.name not in constants)
    return OperatorGraph(operators, tensors, inputs, tuple(one.name for one in graph.output), simulated=True)


def _tensor(kind: Any) -> GraphTensor:
    from onnx import helper

    shape = tuple(int(side.dim_value) for side in kind.shape.dim)
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(kind.elem_type)) if kind.elem_type else None
    return GraphTensor(shape, int(np.prod(shape)) * (dtype.itemsize if dtype else 0), dtype.name if dtype else "")


def _operator(node: Any, tensors: dict[Any, GraphTensor], consumers: dict[str, list[Any]]) -> GraphOperator:
    kind = node.op_type
    role = ROLES.get(kind, "compute")
    inputs, outputs = tuple(name for name in node.input if name), tuple(name for name in node.output if name)
    attributes = {one.name: one for one in node.attribute}
    shapes = [tensors.get(name, GraphTensor()).shape for name in (*inputs[:1], *outputs[:1])]
    if (kind == "Concat" and len(inputs) == 1) or (kind in SHAPE_CHANGING and shapes[0] and shapes[0] == shapes[-1]):
        role = "identity"
    order = tuple(attributes["perm"].ints) if "perm" in attributes else tuple(reversed(range(len(shapes[0]))))
    return GraphOperator(
        role,
        kind,
        _layer(node),
        inputs,
        outputs,
        role == "transpose" and changes_memory_order(sorted(order), order, shapes[0]),
        role == "pad" and _absorbable(node, attributes, tensors, consumers),
        kind in NEUTRAL,
        NEUTRAL.get(kind),
    )


def _layer(node: Any) -> str:
    """Return the module whose weights a node has, or else the node's own name."""
    weights = next((name for name in node.input[1:2] if ".weight" in name), "")
    if node.op_type in ONNX_WEIGHTED and weights:
        return str(weights.partition(".weight")[0])
    return str(node.name or node.output[0])


def _absorbable(
    node: Any, attributes: dict[str, Any], tensors: dict[Any, GraphTensor], consumers: dict[str, Any]
) -> bool:
    """Return whether a pad adds zeros to height and width only, and only before convolutions, which can pad too."""
    mode = attributes["mode"].s if "mode" in attributes else b"constant"
    amounts = tensors.get(node.input[1], GraphTensor()).value if len(node.input) > 1 else None
    filled = tensors.get(node.input[2], GraphTensor()).value if len(node.input) > 2 and node.input[2] else np.zeros(1)
    users = consumers.get(node.output[0], [])
    if mode != b"constant" or amounts is None or filled is None or np.any(filled) or len(node.input) > 3:
        return False
    sides = np.reshape(amounts, (2, -1))
    return bool(not sides[:, :2].any() and (sides >= 0).all() and users and all(t.op_type == "Conv" for t in users))


def graphs_of(graph: Any) -> Iterator[Any]:
    """Yield a graph and those inside its operators, each before the ones inside it."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                yield from graphs_of(inner)


def used_names(graph: Any) -> list[str]:
    """Return the names that operators read and graphs return, with repetitions.

    Graphs inside operators are included, because they may read tensors of the graph around them.
    """
    return [
        name
        for each in graphs_of(graph)
        for names in (*(node.input for node in each.node), [one.name for one in each.output])
        for name in names
    ]


def drop_unused(graph: Any) -> None:
    """Remove the constants of a graph that are read neither in the graph nor inside its operators."""
    used = {*used_names(graph), *(one.name for one in graph.input)}
    for index in reversed(range(len(graph.initializer))):
        if graph.initializer[index].name not in used:
            del graph.initializer[index]
