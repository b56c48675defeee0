"""Inspect ONNX models, and set their open dimensions: the batch to 1, and height and width to those of the images."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

CHANNELS = (1, 3)


def has_external_weights(model: Any) -> bool:
    """Return whether any tensor is stored in another file."""
    return bool(external_files(model))


def external_files(model: Any) -> set[str]:
    """Return the names of the other files in which tensors are stored."""
    import onnx

    tensors = [*_tensors(model.graph), *(each for function in model.functions for each in _node_tensors(function.node))]
    external = [each for each in tensors if each.data_location == onnx.TensorProto.EXTERNAL]
    return {entry.value for each in external for entry in each.external_data if entry.key == "location"}


def set_batch_to_one(model: Any) -> list[str]:
    """Set an open batch to 1, in place, and return a description of each change."""
    import onnx

    inputs = _inputs(model)
    changes = []
    for each in inputs:
        sides = each.type.tensor_type.shape.dim
        if len(sides) > 1 and not sides[0].dim_value:
            sides[0].dim_value = 1
            changes = ["its open batch was set to 1"]
    results = [each.type.tensor_type.shape for each in model.graph.output]
    if not changes and all(side.dim_value for result in results for side in result.dim):
        return []
    inferred = {each.name: each for each in onnx.shape_inference.infer_shapes(model, data_prop=True).graph.output}
    completed = []
    for each, result in zip(model.graph.output, results, strict=True):
        shape = inferred[each.name].type.tensor_type.shape
        if changes and len(result.dim) and not result.dim[0].dim_value and not shape.dim[0].dim_value:
            shape.dim[0].dim_value = 1  # shape inference gave up; running the model will show the shape
        if result != shape:
            result.CopyFrom(shape)
            completed = [f"the shape of its output{'s' if len(results) > 1 else ''} was filled in"]
    return changes or completed


def set_image_size(model: Any, size: tuple[int, int]) -> list[str]:
    """Set the open height and width of an image input, in place, and return a description of each change."""
    import onnx

    inputs = _inputs(model)
    sides = inputs[0].type.tensor_type.shape.dim if len(inputs) == 1 else []
    axes = image_axes([side.dim_value or -1 for side in sides])
    if not any(not sides[axis].dim_value for axis in axes):
        return []
    for axis, side in zip(axes, size, strict=True):
        sides[axis].dim_value = sides[axis].dim_value or side
    for each in model.graph.output:
        inferred = onnx.shape_inference.infer_shapes(model, data_prop=True).graph.output
        each.type.CopyFrom(next(one.type for one in inferred if one.name == each.name))
    return [f"its open height and width were set to {size[0]}×{size[1]}"]


def image_axes(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the axes of height and width in an image input; empty if 1 or 3 channels do not show which they are."""
    if len(shape) != 4 or (shape[1] in CHANNELS) == (shape[3] in CHANNELS):
        return ()
    return (2, 3) if shape[1] in CHANNELS else (1, 2)


def argmax_input(model: Any) -> str:
    """Return the name of the tensor whose argmax is the graph's only output; empty if the output is not an argmax."""
    makers = {name: node for node in model.graph.node for name in node.output}
    node = makers.get(model.graph.output[0].name) if len(model.graph.output) == 1 else None
    while node is not None and node.op_type in ("Cast", "Squeeze", "Identity", "Reshape", "Flatten"):
        node = makers.get(node.input[0])
    return str(node.input[0]) if node is not None and node.op_type == "ArgMax" else ""


def describe_ports(model: Any) -> dict[str, list[dict[str, Any]]]:
    """Return {"inputs": …, "outputs": …}, each a list of {name, shape, dtype}; open dimensions are -1."""
    return {"inputs": [_port(each) for each in _inputs(model)], "outputs": [_port(each) for each in model.graph.output]}


def is_quantized(model: Any) -> bool:
    """Return whether some of the model's arithmetic is on 8-bit integers."""
    import onnx

    bytes_ = (onnx.TensorProto.INT8, onnx.TensorProto.UINT8)
    return any("QuantizeLinear" in each.op_type for each in model.graph.node) or any(
        each.data_type in bytes_ for each in _tensors(model.graph)
    )


def _inputs(model: Any) -> list[Any]:
    """Return the inputs without the weights, which files of an IR version before 4 list among them."""
    weights = {each.name for each in model.graph.initializer}
    return [each for each in model.graph.input if each.name not in weights]


def _port(value: Any) -> dict[str, Any]:
    import onnx

    tensor = value.type.tensor_type
    try:
        dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)).name
    except (KeyError, TypeError):
        dtype = f"type {tensor.elem_type}"
    return {"name": value.name, "shape": [side.dim_value or -1 for side in tensor.shape.dim], "dtype": dtype}


def _tensors(graph: Any) -> Iterator[Any]:
    """Yield every tensor that a graph stores, including those of its nodes and of graphs inside them."""
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    yield from _node_tensors(graph.node)


def _node_tensors(nodes: Any) -> Iterator[Any]:
    for node in nodes:
        for attribute in node.attribute:
            yield from (attribute.t, *attribute.tensors)
            for inner in (attribute.g, *attribute.graphs):
                yield from _tensors(inner)


def unused_name(name: str, used: set[str]) -> str:
    """Append `_` to `name` until `used` does not contain the result; add the result to `used` and return it."""
    while name in used:
        name += "_"
    used.add(name)
    return name
