"""ONNX files: their inputs, outputs and names, and open sides set to what is known: a batch of 1, a picture's size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

CHANNELS = (1, 3)


def has_external_weights(model: Any) -> bool:
    """Whether any tensor lies in another file."""
    return bool(external_files(model))


def external_files(model: Any) -> set[str]:
    """Names of the other files that tensors lie in."""
    import onnx

    tensors = [*_tensors(model.graph), *(each for function in model.functions for each in _of_nodes(function.node))]
    elsewhere = [each for each in tensors if each.data_location == onnx.TensorProto.EXTERNAL]
    return {entry.value for each in elsewhere for entry in each.external_data if entry.key == "location"}


def set_batch_to_one(model: Any) -> list[str]:
    """Set an open batch to 1, in place; what was done, in words."""
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
    filled = []
    for each, result in zip(model.graph.output, results, strict=True):
        known = inferred[each.name].type.tensor_type.shape
        if changes and len(result.dim) and not result.dim[0].dim_value and not known.dim[0].dim_value:
            known.dim[0].dim_value = 1  # shape inference gave up on the way; recording its answers will tell
        if result != known:
            result.CopyFrom(known)
            filled = [f"the shape of its output{'s' if len(results) > 1 else ''} was filled in"]
    return changes or filled


def set_image_size(model: Any, size: tuple[int, int]) -> list[str]:
    """Set a picture's open height and width, in place; what was done, in words."""
    import onnx

    inputs = _inputs(model)
    sides = inputs[0].type.tensor_type.shape.dim if len(inputs) == 1 else []
    places = image_axes([side.dim_value or -1 for side in sides])
    if not any(not sides[place].dim_value for place in places):
        return []
    for place, side in zip(places, size, strict=True):
        sides[place].dim_value = sides[place].dim_value or side
    for each in model.graph.output:
        known = onnx.shape_inference.infer_shapes(model, data_prop=True).graph.output
        each.type.CopyFrom(next(one.type for one in known if one.name == each.name))
    return [f"its open height and width were set to {size[0]}×{size[1]}"]


def image_axes(shape: Sequence[int]) -> tuple[int, ...]:
    """Where height and width stand in an input of pictures, by its channels; empty if that is unknown."""
    if len(shape) != 4 or (shape[1] in CHANNELS) == (shape[3] in CHANNELS):
        return ()
    return (2, 3) if shape[1] in CHANNELS else (1, 2)


def argmax_input(model: Any) -> str:
    """The tensor that a graph's only output is the place of the largest value of; empty where it is no such place."""
    makers = {name: node for node in model.graph.node for name in node.output}
    node = makers.get(model.graph.output[0].name) if len(model.graph.output) == 1 else None
    while node is not None and node.op_type in ("Cast", "Squeeze", "Identity", "Reshape", "Flatten"):
        node = makers.get(node.input[0])
    return str(node.input[0]) if node is not None and node.op_type == "ArgMax" else ""


def describe_ports(model: Any) -> dict[str, list[dict[str, Any]]]:
    """{"inputs", "outputs": [{name, shape, dtype}]}; open sides are -1."""
    return {"inputs": [_port(each) for each in _inputs(model)], "outputs": [_port(each) for each in model.graph.output]}


def is_quantized(model: Any) -> bool:
    """Whether some of its arithmetic is on 8-bit integers."""
    import onnx

    bytes_ = (onnx.TensorProto.INT8, onnx.TensorProto.UINT8)
    return any("QuantizeLinear" in each.op_type for each in model.graph.node) or any(
        each.data_type in bytes_ for each in _tensors(model.graph)
    )


def _inputs(model: Any) -> list[Any]:
    """Files of an IR version before 4 list their weights among the inputs."""
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
    """Every tensor that a graph stores, those of its nodes and of graphs inside them too."""
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    yield from _of_nodes(graph.node)


def _of_nodes(nodes: Any) -> Iterator[Any]:
    for node in nodes:
        for attribute in node.attribute:
            yield from (attribute.t, *attribute.tensors)
            for inner in (attribute.g, *attribute.graphs):
                yield from _tensors(inner)


def unused_name(name: str, known: set[str]) -> str:
    """`name`, or with as many `_` behind it as make it new; it is added to `known`."""
    while name in known:
        name += "_"
    known.add(name)
    return name
