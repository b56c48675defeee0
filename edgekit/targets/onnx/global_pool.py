"""The mean over height and width of an int8 ONNX file called what it is: `GlobalAveragePool`.

The exporter writes `ReduceMean`. ONNX Runtime computes that in float and with the channels in front: a transpose, a
DequantizeLinear and a QuantizeLinear for it alone. Of the pool between the same scales it has an integer kernel that
takes the channels behind, as the convolutions leave them. It rounds once instead of twice.
"""

from __future__ import annotations

from typing import Any

from edgekit.targets.onnx.subgraphs import drop_unused

SIDES = ([2, 3], [-2, -1])
"""Height and width, in the order that a file may count them from either end."""
RANK = 4
SHAPES = {"Reshape", "Squeeze"}
"""ONNX Runtime moves a QuantizeLinear from behind these to before them."""


def rename(content: bytes) -> bytes:
    """The model with the pool in place of such means, or unchanged where there is none."""
    import onnx
    from onnx import helper, shape_inference

    model = onnx.load_model_from_string(content)
    graph = shape_inference.infer_shapes(model).graph
    ranks = {each.name: len(each.type.tensor_type.shape.dim) for each in (*graph.input, *graph.value_info)}
    constants = {one.name: one for one in model.graph.initializer}
    makers = {name: node.op_type for node in model.graph.node for name in node.output}
    takers: dict[str, list[Any]] = {}
    for node in model.graph.node:
        for name in node.input:
            takers.setdefault(name, []).append(node)
    renamed = False
    for node in model.graph.node:
        in_integers = (
            node.op_type == "ReduceMean"
            and makers.get(node.input[0]) == "DequantizeLinear"
            and _is_quantized(node.output[0], takers)
        )
        if in_integers and ranks.get(node.input[0]) == RANK and _over_sides(node, constants):
            node.CopyFrom(helper.make_node("GlobalAveragePool", node.input[:1], node.output, name=node.name))
            renamed = True
    if not renamed:
        return content
    drop_unused(model.graph)
    return bytes(model.SerializeToString(deterministic=True))


def _is_quantized(name: str, takers: dict[str, list[Any]]) -> bool:
    """Whether all that becomes of a tensor are levels, perhaps in another shape."""
    while len(takers.get(name, ())) == 1 and takers[name][0].op_type in SHAPES:
        name = takers[name][0].output[0]
    return [each.op_type for each in takers.get(name, ())] == ["QuantizeLinear"]


def _over_sides(node: Any, constants: dict[str, Any]) -> bool:
    """Whether the mean is over height and width, which stay as sides of one."""
    from onnx import numpy_helper

    attributes = {one.name: one for one in node.attribute}
    if "keepdims" in attributes and not attributes["keepdims"].i:
        return False
    if "axes" in attributes:
        axes = list(attributes["axes"].ints)
    elif len(node.input) > 1 and node.input[1] in constants:
        axes = numpy_helper.to_array(constants[node.input[1]]).tolist()
    else:
        return False
    return sorted(axes) in SIDES
