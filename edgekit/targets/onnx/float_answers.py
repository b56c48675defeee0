"""The answers of an int8 ONNX file left as its last dense layer sums them: not rounded to 256 levels and back.

ONNX Runtime's kernel for a dense layer between scales, `QGemm`, gives floats as readily as levels. Two operators and
their numbers go, 270 bytes, and the answers are nearer to those of the float network.
"""

from __future__ import annotations

from typing import Any

from edgekit.targets.onnx.subgraphs import drop_unused, taken

LAYER = "Gemm"
"""Other layers have no such kernel: before a float output they would compute in float."""
CHAIN = ("DequantizeLinear", "QuantizeLinear", LAYER)


def keep(content: bytes) -> bytes:
    """The model without the last QuantizeLinear and DequantizeLinear of such outputs, or unchanged."""
    import onnx

    model = onnx.load_model_from_string(content)
    graph = model.graph
    makers = {name: node for node in graph.node for name in node.output}
    used = taken(graph)
    gone = []
    for output in graph.output:
        chain = _chain(output.name, makers)
        if chain and all(used.count(node.output[0]) == 1 for node in chain) and _takes_levels(chain[-1], makers):
            dequantize, quantize, layer = chain
            layer.output[0] = output.name
            gone += [dequantize, quantize]
    if not gone:
        return content
    for node in gone:
        graph.node.remove(node)
    drop_unused(graph)
    return bytes(model.SerializeToString(deterministic=True))


def _chain(name: str, makers: dict[str, Any]) -> list[Any]:
    """The operators behind which an output stands, the last first; none where they are others."""
    found = []
    for kind in CHAIN:
        node = makers.get(name)
        if node is None or node.op_type != kind:
            return []
        found.append(node)
        name = node.input[0]
    return found


def _takes_levels(layer: Any, makers: dict[str, Any]) -> bool:
    """Whether what it multiplies is quantized, so that ONNX Runtime computes it in integers."""
    sides = [makers.get(name) for name in layer.input[:2]]
    return all(side is not None and side.op_type == "DequantizeLinear" for side in sides)
