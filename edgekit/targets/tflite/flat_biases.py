"""Biases of more than one axis, which TFLite int8 cannot have: their scales would stand along an axis of length one.

A converter makes such a bias, (1, 1, 1, channels), where it folds a scale of four axes into a dense layer, as the layer
scale of a ConvNeXt is.
"""

from __future__ import annotations

import numpy as np

from edgekit.models.files import flatbuffer
from edgekit.targets.tflite.dead_channels import BIAS, CHANNEL_AXIS


def flattened(content: bytes) -> bytes:
    """The float model with biases of one axis; the file as it is where it has no others."""
    from ai_edge_litert import schema_py_generated as schema

    model = flatbuffer.parse(content)
    weighted = {getattr(schema.BuiltinOperator, name) for name in CHANNEL_AXIS}
    codes = [max(code.builtinCode, code.deprecatedBuiltinCode) for code in model.operatorCodes]
    biases = [
        graph.tensors[op.inputs[BIAS]]
        for graph in model.subgraphs
        for op in graph.operators
        if codes[op.opcodeIndex] in weighted and len(op.inputs) > BIAS and op.inputs[BIAS] >= 0
    ]
    several = [bias for bias in biases if bias.shape is not None and len(bias.shape) > 1]
    for bias in several:
        bias.shape, bias.shapeSignature = np.array([np.prod(bias.shape)], np.int32), None
    return flatbuffer.write(model) if several else content
