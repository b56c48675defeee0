"""A TFLite file that takes a sample's bytes, its preprocess steps in its input's scale.

A float file gets one operator in front, DEQUANTIZE, which multiplies as the runner does: the same bits. An int8 file
needs none: `ends` are given to its input's range, and each byte is a level of its own. The runner sees from the scale
that bytes go in as they are, or less 128 (`runner/encode.py`), and so does one that never heard of this.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from edgekit.models.files import flatbuffer
from edgekit.targets import fold_preprocess
from edgekit.targets.fold_preprocess import BYTES


def ends(values: np.ndarray | str | None) -> tuple[float, float] | None:
    """The range of an int8 input whose levels are the bytes; None where nothing is to be folded."""
    return (float(values[0]), float(values[-1])) if isinstance(values, np.ndarray) else None


def fold(content: bytes, values: np.ndarray | str) -> tuple[bytes, str]:
    """The file that takes bytes, or as it is, and what became of the steps, in words.

    Parameters
    ----------
    content
        The file.
    values
        Its input for each byte, (256,) float32; or why there are none, from `fold_preprocess.of_bytes`.
    """
    if isinstance(values, str):
        return content, f"not folded: {values}"
    model = flatbuffer.parse(content)
    graph = model.subgraphs[0]
    if len(graph.inputs) != 1:
        return content, f"not folded: the file has {len(graph.inputs)} inputs"
    tensor = graph.tensors[graph.inputs[0]]
    if _is_float(tensor):
        found = fold_preprocess.grid(values)
        if isinstance(found, str):
            return content, f"not folded: {found}"
        _dequantize(model, *found)
        return flatbuffer.write(model), f"folded: the input takes bytes, scale {found[0]:.8g}, zero point {found[1]}"
    return content, _levels(tensor, values)


def _is_float(tensor: Any) -> bool:
    from ai_edge_litert import schema_py_generated as schema

    return bool(tensor.type == schema.TensorType.FLOAT32)


def _levels(tensor: Any, values: np.ndarray) -> str:
    """Whether each byte is the level of a quantized input that the runner takes it for."""
    from ai_edge_litert import schema_py_generated as schema

    lowest = {schema.TensorType.INT8: -128, schema.TensorType.UINT8: 0}.get(tensor.type)
    parameters = tensor.quantization
    if lowest is None or parameters is None or parameters.scale is None or len(parameters.scale) != 1:
        return "not folded: the input has no scale of its own"
    scale, zero = np.float32(parameters.scale[0]), int(parameters.zeroPoint[0])
    levels = np.clip(np.rint(values / scale) + np.float32(zero), lowest, lowest + 255)
    if (levels == BYTES.astype(np.int64) + lowest).all():
        return f"folded: each byte is a level of the input, scale {scale:.8g}, zero point {zero}"
    shared = len(BYTES) - len(np.unique(levels))
    return f"not folded: by the input's scale {scale:.8g} and zero point {zero}, {shared} of 256 bytes share a level"


def _dequantize(model: Any, scale: float, zero: int) -> None:
    """Put the operator in front of the main graph, and its input in place of the graph's."""
    from ai_edge_litert import schema_py_generated as schema

    graph, code = model.subgraphs[0], schema.OperatorCodeT()
    code.builtinCode = code.deprecatedBuiltinCode = schema.BuiltinOperator.DEQUANTIZE
    code.version = 1  # of uint8
    model.operatorCodes.append(code)
    place, [before] = len(graph.tensors), graph.inputs
    real, taken = graph.tensors[before], schema.TensorT()
    taken.name, real.name = real.name, b""
    taken.shape, taken.shapeSignature, taken.hasRank = real.shape, real.shapeSignature, real.hasRank
    taken.type, taken.buffer = schema.TensorType.UINT8, 0  # the first buffer is the empty one
    taken.quantization = schema.QuantizationParametersT()
    taken.quantization.scale, taken.quantization.zeroPoint = [scale], [zero]
    graph.tensors.append(taken)
    operator = schema.OperatorT()
    operator.opcodeIndex, operator.inputs, operator.outputs = len(model.operatorCodes) - 1, [place], [int(before)]
    graph.operators.insert(0, operator)
    graph.inputs = [place]
    for signature in model.signatureDefs or ():
        for end in signature.inputs:
            end.tensorIndex = place if end.tensorIndex == before else end.tensorIndex
