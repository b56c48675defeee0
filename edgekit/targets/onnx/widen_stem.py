"""The first convolution of an int8 ONNX file taught to take four channels, of which the last holds zeros.

ONNX Runtime has a fast kernel for 8-bit convolutions whose input channels are a multiple of four, and whose outputs are
sixteen at least (MLAS, `MlasConvSymPackWSize`). Pictures have three. The weights of the fourth are zero, so the answers
are the same to the bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np

PICTURE, MULTIPLE = 3, 4
FEWEST_OUTPUTS = 16
PAD = 11
"""The operator set since which `Pad` takes its widths as a tensor."""


def widen(content: bytes) -> bytes:
    """The model with a `Pad` in front of the quantized input, or unchanged where there is no such convolution."""
    import onnx
    from onnx import helper, numpy_helper

    model = onnx.load_model_from_string(content)
    graph = model.graph
    found = _stem(graph) if any(each.domain == "" and each.version >= PAD for each in model.opset_import) else None
    if found is None:
        return content
    quantize, weights = found
    array = numpy_helper.to_array(weights)
    sides = [[0, 0]] * array.ndim
    sides[1] = [0, MULTIPLE - PICTURE]
    weights.CopyFrom(numpy_helper.from_array(np.pad(array, sides), weights.name))
    known = {name for node in graph.node for name in (*node.input, *node.output)}
    widths, wide = (_unused(f"{quantize.input[0]}_{what}", known) for what in ("widths", "wide"))
    amounts = np.array([side[end] for end in (0, 1) for side in sides], dtype=np.int64)
    graph.initializer.append(numpy_helper.from_array(amounts, widths))
    place = list(graph.node).index(quantize)
    pad = helper.make_node("Pad", [quantize.input[0], widths], [wide], name=_unused("widen", known))
    quantize.input[0] = wide
    graph.node.insert(place, pad)
    graph.ClearField("value_info")  # shapes of three channels
    return bytes(model.SerializeToString(deterministic=True))


def _stem(graph: Any) -> tuple[Any, Any] | None:
    """What quantizes the only picture, and the int8 weights of the only convolution that takes it."""
    constants = {one.name: one for one in graph.initializer}
    sources = [one.name for one in graph.input if one.name not in constants]
    takers: dict[str, list[Any]] = {}
    makers = {output: node for node in graph.node for output in node.output}
    for node in graph.node:
        for name in node.input:
            takers.setdefault(name, []).append(node)
    chain: list[Any] = []
    name = sources[0] if len(sources) == 1 else ""
    for kind in ("QuantizeLinear", "DequantizeLinear", "Conv"):
        behind = takers.get(name, [])
        if len(behind) != 1 or behind[0].op_type != kind or behind[0].input[0] != name:
            return None
        chain += behind
        name = behind[0].output[0]
    dequantize = makers.get(chain[-1].input[1])
    if dequantize is None or dequantize.op_type != "DequantizeLinear" or len(takers[chain[-1].input[1]]) != 1:
        return None
    if any(one.name == "group" and one.i != 1 for one in chain[-1].attribute):
        return None  # two groups of three channels are six
    weights = constants.get(dequantize.input[0])
    if weights is None or len(takers[weights.name]) != 1 or not _fits(weights, dequantize, constants):
        return None
    return chain[0], weights


def _fits(weights: Any, dequantize: Any, constants: dict[str, Any]) -> bool:
    """Signed weights around zero, of enough outputs, which see more than one point; a scale for each output."""
    from onnx import TensorProto, numpy_helper

    outputs, inputs, *kernel = weights.dims
    scale = constants.get(dequantize.input[1])
    zero = constants.get(dequantize.input[2]) if len(dequantize.input) > 2 else None
    if scale is None or zero is None or numpy_helper.to_array(zero).any():
        return False
    axis = next((one.i for one in dequantize.attribute if one.name == "axis"), 1)
    return bool(
        weights.data_type == TensorProto.INT8
        and (not scale.dims or (axis == 0 and list(scale.dims) == [outputs]))
        and inputs == PICTURE
        and outputs >= FEWEST_OUTPUTS
        and len(kernel) == 2
        and max(kernel) > 1
    )


def _unused(name: str, known: set[str]) -> str:
    while name in known:
        name += "_"
    known.add(name)
    return name
