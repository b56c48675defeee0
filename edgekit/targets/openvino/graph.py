"""Find redundant operators in OpenVINO's IR, and in the CPU plug-in's compiled form.

A FakeQuantize only marks quantized values, but a second one right after it is executed. In the compiled form, which
depends on the processor, reorders of a tensor count as transposes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from edgekit.runner.backends.openvino import compile_model
from edgekit.targets.float_ops import layer_name
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
    "Transpose": "transpose", "Reshape": "reshape", "Squeeze": "reshape", "Unsqueeze": "reshape",
    "FakeQuantize": "quantize", "Convert": "cast", "Pad": "pad", "Broadcast": "broadcast", "Tile": "broadcast",
    "ShapeOf": "shape",
}  # fmt: skip
COMPILED: dict[str, Role] = {**ROLES, "Reorder": "transpose"}
CONVOLUTIONS = ("Convolution", "GroupConvolution")
NEUTRAL = {"Add": 0.0, "Subtract": 0.0, "Multiply": 1.0, "Divide": 1.0}
SHAPE_CHANGING = ("Slice", "StridedSlice", "Pad", "Broadcast", "Tile")
"""Operators that are redundant if the output has the shape of the input."""


def read(path: Path) -> tuple[RedundantOperator, ...]:
    """Find the redundant operators of a file (.xml with its .bin beside it), then those of its compiled form."""
    import openvino

    core = openvino.Core()
    model = core.read_model(str(path))
    compiled = compile_model(core, model, threads=1).get_runtime_model()
    return (*find_redundant(_graph(model)), *find_redundant(_compiled_graph(compiled, model), compiled=True))


def _key(port: Any) -> tuple[str, int]:
    return port.get_node().get_friendly_name(), port.get_index()


def _tensors(model: Any) -> dict[Any, GraphTensor]:
    tensors: dict[Any, GraphTensor] = {}
    for op in model.get_ordered_ops():
        for port in op.outputs():
            shape = tuple(port.get_shape()) if port.get_partial_shape().is_static else ()
            kind = port.get_element_type()
            value = op.data if op.get_type_name() == "Constant" else None
            stored = value.__array_interface__["data"][0] if value is not None else None
            size = value.nbytes if value is not None else int(np.prod(shape)) * kind.bitwidth // 8
            tensors[_key(port)] = GraphTensor(shape, size, kind.get_type_name(), value, stored)
    return tensors


def _ports(model: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    inputs = tuple(_key(port) for port in model.inputs)
    return inputs, tuple(_key(port.get_node().input_value(0)) for port in model.outputs)


def _graph(model: Any) -> OperatorGraph:
    tensors = _tensors(model)
    operators = []
    for op in model.get_ordered_ops():
        kind = op.get_type_name()
        if kind in ("Parameter", "Constant", "Result"):
            continue
        inputs, outputs = tuple(_key(port) for port in op.input_values()), tuple(_key(port) for port in op.outputs())
        role = ROLES.get(kind, "compute")
        shapes = [tensors[key].shape for key in (*inputs[:1], *outputs[:1])]
        if (kind == "Concat" and len(inputs) == 1) or (
            kind in SHAPE_CHANGING and shapes[0] and shapes[0] == shapes[-1]
        ):
            role = "identity"
        order = tensors[inputs[1]].value if role == "transpose" else None
        operators.append(
            GraphOperator(
                role,
                kind,
                layer_name(op),
                inputs,
                outputs,
                role == "transpose"
                and (order is None or changes_memory_order(range(len(order)), order.tolist(), shapes[0])),
                role == "pad" and _absorbable(op, tensors),
                kind in NEUTRAL,
                NEUTRAL.get(kind),
            )
        )
    return OperatorGraph(operators, tensors, *_ports(model), simulated=True)


def _absorbable(pad: Any, tensors: dict[Any, GraphTensor]) -> bool:
    """Return whether a pad adds zeros to height and width only, and only before convolutions, which can pad too."""
    begin, end = (tensors[_key(pad.input_value(index))].value for index in (1, 2))
    filled = tensors[_key(pad.input_value(3))].value if pad.get_input_size() > 3 else np.zeros(1)
    users = [port.get_node().get_type_name() for port in pad.output(0).get_target_inputs()]
    if (
        begin is None
        or end is None
        or filled is None
        or np.any(filled)
        or pad.get_attributes()["pad_mode"] != "constant"
    ):
        return False
    spatial = not (begin[:2].any() or end[:2].any()) and (begin >= 0).all() and (end >= 0).all()
    return bool(spatial and users and all(kind in CONVOLUTIONS for kind in users))


def _compiled_graph(runtime: Any, model: Any) -> OperatorGraph:
    """Return the compiled graph, whose nodes name the layers from which they were made.

    A reorder that keeps the order of the axes only changes the type, so it counts as a cast.
    """
    layers = {op.get_friendly_name(): layer_name(op) for op in model.get_ordered_ops()}
    kinds = {op.get_friendly_name(): op.get_type_name() for op in model.get_ordered_ops()}
    tensors: dict[Any, GraphTensor] = {}
    operators = []
    for op in runtime.get_ordered_ops():
        kind = _runtime_info(op, "layerType")
        for port in op.outputs():
            size = int(np.prod(port.get_shape())) * port.get_element_type().bitwidth // 8
            value = np.zeros(0) if kind == "Const" else None  # the compiled model does not expose the numbers
            tensors[_key(port)] = GraphTensor(
                tuple(port.get_shape()), size, port.get_element_type().get_type_name(), value
            )
        if kind in ("Input", "Output", "Const"):
            continue
        inputs, outputs = tuple(_key(port) for port in op.input_values()), tuple(_key(port) for port in op.outputs())
        names = [name for name in _runtime_info(op, "originalLayersNames").split(",") if name]
        role = COMPILED.get(kind, "compute")
        if names and all(kinds.get(name) == "FakeQuantize" for name in names):
            role = "quantize"
        moved = role == "transpose"
        if kind == "Reorder":
            source = op.input_value(0)
            before, after = _layout(source.get_node(), source.get_index()), _layout(op)
            role, moved = ("cast" if before == after else "transpose"), _reordered(before, after, tensors[inputs[0]])
        layer = next((layers[name] for name in names if name in layers), names[0] if names else kind)
        operators.append(GraphOperator(role, kind, layer, inputs, outputs, moved))
    return OperatorGraph(operators, tensors, *_ports(runtime), simulated=True)


def _runtime_info(op: Any, what: str) -> str:
    """Return an entry of a node's runtime information; empty if it has none."""
    info = op.get_rt_info()
    return str(info[what].astype(str)) if what in info else ""


def _layout(op: Any, output: int = 0) -> str:
    """Return the layout of one output; a node with several outputs lists all layouts, separated by commas."""
    layouts = _runtime_info(op, "outputLayouts").split(",")
    return layouts[min(output, len(layouts) - 1)]


def _reordered(source_layout: str, result_layout: str, tensor: GraphTensor) -> bool:
    """Return whether the order in memory changes between two layouts.

    Layouts name axes from the outermost: `acdb` is NHWC, and `aBcd16b` has its channels in blocks of 16.
    """
    blocked = any(char.isdigit() for char in source_layout + result_layout)
    if blocked:
        return source_layout != result_layout and sum(side != 1 for side in tensor.shape) > 1
    axes = [[ord(axis) - ord("a") for axis in layout] for layout in (source_layout, result_layout)]
    return changes_memory_order(axes[0], axes[1], tensor.shape)
