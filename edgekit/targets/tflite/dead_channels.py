"""Channels whose weights are all zero, and the biases that TFLite int8 would lose with them.

A bias is stored as int32 in steps of (input scale × weight scale). ai-edge-quantizer gives a channel of zeros a weight
scale near 1e-11. Its bias, which after folding a batch norm is the channel's whole output, then overflows and is
clipped. Pruning single weights makes such channels: a depthwise network lost 23 dB to four of them. One weight of the
channel is set to the smallest value for which the bias fits. That changes the output by less than a ten-thousandth of
the bias.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

CHANNEL_AXIS = {"CONV_2D": 0, "DEPTHWISE_CONV_2D": 3, "FULLY_CONNECTED": 0}
WEIGHT, BIAS = 1, 2
LARGEST_BIAS_STEPS = 2**29
LEVELS = 127
SMALLEST_RANGE = 1e-6


def keep_biases(content: bytes, ranges: Mapping[str, Mapping[str, Any]]) -> bytes:
    """The float model with its dead channels' biases made representable; `ranges` are min and max by tensor name."""
    from ai_edge_litert import schema_py_generated as schema

    edited = bytearray(content)
    model = schema.Model.GetRootAs(edited, 0)
    for graph, op, axis in _weighted(schema, model):
        weight, bias = _values(model, graph, op, WEIGHT), _values(model, graph, op, BIAS)
        source = ranges.get(graph.Tensors(op.Inputs(0)).Name().decode())
        if weight is None or bias is None or source is None:
            continue
        step = max(float(np.max(source["max"]) - np.min(source["min"])), SMALLEST_RANGE) / 255
        channels = np.moveaxis(weight, axis, 0)
        if bias.size != len(channels):
            continue
        for channel, value in zip(channels, bias.ravel(), strict=True):
            floor = LEVELS * abs(float(value)) / (step * LARGEST_BIAS_STEPS)
            if np.abs(channel).max() < floor:
                channel[(0,) * channel.ndim] = floor  # a view: writes into `edited`
    return bytes(edited)


def _weighted(schema: Any, model: Any) -> Iterator[tuple[Any, Any, int]]:
    axes = {getattr(schema.BuiltinOperator, name): axis for name, axis in CHANNEL_AXIS.items()}
    for graph in (model.Subgraphs(place) for place in range(model.SubgraphsLength())):
        for op in (graph.Operators(place) for place in range(graph.OperatorsLength())):
            code = model.OperatorCodes(op.OpcodeIndex())
            axis = axes.get(max(code.BuiltinCode(), code.DeprecatedBuiltinCode()))
            if axis is not None and op.InputsLength() > BIAS:
                yield graph, op, axis


def _values(model: Any, graph: Any, op: Any, place: int) -> np.ndarray | None:
    """A writable float32 view of a constant input, or None where it is absent or not constant."""
    if op.Inputs(place) < 0:
        return None
    tensor = graph.Tensors(op.Inputs(place))
    data = model.Buffers(tensor.Buffer()).DataAsNumpy()
    if isinstance(data, int) or len(data) == 0:
        return None
    return data.view(np.float32).reshape(tensor.ShapeAsNumpy())
