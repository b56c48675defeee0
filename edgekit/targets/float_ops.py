"""Find the operators of an int8 model file that still compute in float.

Three kinds are not listed: operators that convert between float and integers (quantize, dequantize), operators that
only move values (reshapes, padding), and operators that an interpreter fuses into the one before (a bias, an
activation).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.core.errors import ConversionError

OperatorArithmetic = tuple[bool, str, bool]
"""Whether an operator has weights, its description as `OPERATOR:layer`, and whether it computes in float."""
TfliteOperator = tuple[Any, Any, Any, str]
"""The model, the graph, the operator, and the format's name for its kind."""

TFLITE_WEIGHTED = {"FULLY_CONNECTED", "CONV_2D", "DEPTHWISE_CONV_2D", "BATCH_MATMUL", "TRANSPOSE_CONV"}
TFLITE_MOVING = {"RESHAPE", "TRANSPOSE", "SQUEEZE", "EXPAND_DIMS", "PAD", "PADV2", "SLICE", "STRIDED_SLICE", "GATHER",
                 "CONCATENATION", "SPLIT", "PACK", "UNPACK", "QUANTIZE", "DEQUANTIZE"}  # fmt: skip

ONNX_WEIGHTED = {"Conv", "ConvTranspose", "Gemm", "MatMul"}
ONNX_MOVING = {"Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Pad", "Slice", "Gather", "Concat", "Split",
               "Identity", "Cast", "Shape", "Constant", "QuantizeLinear", "DequantizeLinear"}  # fmt: skip
# between DequantizeLinear and QuantizeLinear, ONNX Runtime has integer kernels for these
ONNX_INTEGER = {"Add", "Mul", "AveragePool", "GlobalAveragePool", "MaxPool", "Resize", "Sigmoid", "LeakyRelu",
                "Softmax", "Where", "ArgMax"}  # fmt: skip
# before QuantizeLinear, these only limit its range
ONNX_FUSED = {"Relu", "Clip"}

OPENVINO_WEIGHTED = {"Convolution", "GroupConvolution", "ConvolutionBackpropData", "GroupConvolutionBackpropData",
                     "MatMul"}  # fmt: skip
OPENVINO_MOVING = {"Parameter", "Result", "Constant", "Convert", "FakeQuantize", "Reshape", "Squeeze", "Unsqueeze",
                   "Transpose", "Pad", "Concat", "Split", "VariadicSplit", "Slice", "StridedSlice", "Gather",
                   "ShuffleChannels", "ShapeOf", "Broadcast"}  # fmt: skip
# the CPU plug-in computes these on 8-bit data
OPENVINO_INTEGER = {"MaxPool", "AvgPool", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceSum", "MVN", "Interpolate"}
# the CPU plug-in fuses these into the operator before them
OPENVINO_FUSED = {"Add", "Subtract", "Multiply", "Maximum", "Minimum", "Relu", "PRelu", "Clamp", "Elu", "Sigmoid",
                  "Tanh", "Gelu", "HSwish", "HSigmoid", "Swish", "Mish", "SoftPlus"}  # fmt: skip


def tflite(content: bytes, finished: bool = False) -> tuple[str, ...]:
    """Return the operators of a TFLite file that compute in float, according to the types of their tensors.

    Raises ConversionError if no operator with weights computes in integers, unless the file is `finished`, which means
    that it was quantized before edgekit got it.
    """
    return _float_operators("tflite", lambda: _tflite(content), finished)


def onnx(content: bytes, finished: bool = False) -> tuple[str, ...]:
    """Return the operators of an ONNX file that compute in float.

    Operators between DequantizeLinear and QuantizeLinear compute in integers. Raises the same error as `tflite`.
    """
    return _float_operators("onnx", lambda: _onnx(content), finished)


def openvino(path: Path, finished: bool = False) -> tuple[str, ...]:
    """Return the operators of an OpenVINO file that compute in float, according to FakeQuantize and int8 constants.

    `path` is the .xml, with its .bin beside it. Raises the same error as `tflite`.
    """
    return _float_operators("openvino", lambda: _openvino(path), finished)


def _float_operators(target: str, read: Callable[[], Iterable[OperatorArithmetic]], finished: bool) -> tuple[str, ...]:
    """Return the operators in float. Raises ConversionError if no operator with weights computes in integers.

    If the file cannot be read, the result has a single entry that says so, because an empty result would mean that all
    operators compute in integers.
    """
    try:
        operators = list(read())
    except Exception as error:  # parsers and interpreters raise any class of error, and the file itself is complete
        return (f"not known: {type(error).__name__}: {error}",)
    weighted = [in_float for has_weights, _, in_float in operators if has_weights]
    if weighted and all(weighted) and not finished:
        raise ConversionError(
            f"{target} int8: none of its {len(weighted)} weighted ops computes in integers; leave int8 out of "
            "convert.precisions, or this target out of targets"
        )
    return tuple(name for _, name, in_float in operators if in_float)


def tflite_operators(content: bytes) -> Iterator[TfliteOperator]:
    """Yield every operator of every graph in a TFLite file."""
    from ai_edge_litert import schema_py_generated as schema

    names = {value: name for name, value in vars(schema.BuiltinOperator).items() if not name.startswith("_")}
    model = schema.ModelT.InitFromPackedBuf(content, 0)
    for graph in model.subgraphs:
        for op in graph.operators:
            code = model.operatorCodes[op.opcodeIndex]
            yield model, graph, op, names[max(code.builtinCode, code.deprecatedBuiltinCode)]


def main_graph_operators(operators: Iterable[TfliteOperator]) -> list[TfliteOperator]:
    """Return the operators of the main graph.

    The graphs of loops and conditions are left out, because the indices of their tensors have another meaning.
    """
    return [one for one in operators if one[1] is one[0].subgraphs[0]]


def _tflite(content: bytes) -> Iterator[OperatorArithmetic]:
    from ai_edge_litert import schema_py_generated as schema

    floats = (schema.TensorType.FLOAT32, schema.TensorType.FLOAT16)
    for _, graph, op, kind in tflite_operators(content):
        if kind not in TFLITE_MOVING:
            tensors = [graph.tensors[index] for index in (*op.inputs, *op.outputs) if index >= 0]
            layer = module_name(graph.tensors[op.outputs[0]].name.decode())
            yield kind in TFLITE_WEIGHTED, f"{kind}:{layer}", any(one.type in floats for one in tensors)


def module_name(tensor: str) -> str:
    """Return the first module in a tensor's name, `stem.0` for `…Net_wrapped/….Sequential_stem/….Conv2d_0;;…`."""
    path = tensor.split(";")[0].split("_wrapped/")[-1]
    parts = [part.rsplit(".", 1)[-1].partition("_")[2] for part in path.split("/")] if "/" in path else [path]
    return ".".join(part for part in parts if part) or tensor


def _onnx(content: bytes) -> Iterator[OperatorArithmetic]:
    import onnx as library

    graph = library.load_from_string(content).graph
    producers = {output: node for node in graph.node for output in node.output}
    constants = {one.name for one in graph.initializer}
    consumers: dict[str, list[str]] = {}
    for node in graph.node:
        for name in node.input:
            consumers.setdefault(name, []).append(node.op_type)

    def dequantized(name: str) -> bool:
        node = producers.get(name)
        while node is not None and node.op_type in ONNX_MOVING - {"DequantizeLinear", "QuantizeLinear"} and node.input:
            node = producers.get(node.input[0])
        return node is not None and node.op_type == "DequantizeLinear"

    for node in graph.node:
        if node.op_type in ONNX_MOVING or all(name in constants for name in node.input):
            continue
        weighted = node.op_type in ONNX_WEIGHTED
        data = node.input[:2] if weighted else [name for name in node.input if name and name not in constants]
        integer = all(dequantized(name) for name in data) and (weighted or node.op_type in ONNX_INTEGER)
        fused = node.op_type in ONNX_FUSED and set(consumers.get(node.output[0], ())) == {"QuantizeLinear"}
        layer = (
            node.input[1].partition(".weight")[0]
            if weighted and ".weight" in node.input[1]
            else node.name or node.output[0]
        )
        yield weighted, f"{node.op_type}:{layer}", not (integer or fused)


def _openvino(path: Path) -> Iterator[OperatorArithmetic]:
    import openvino as library

    states: dict[str, str] = {}
    for op in library.Core().read_model(str(path)).get_ordered_ops():
        inputs = [states[op.input_value(index).get_node().get_friendly_name()] for index in range(op.get_input_size())]
        kind, name = op.get_type_name(), op.get_friendly_name()
        states[name], integer = _state(op, kind, inputs)
        if integer is not None:
            yield kind in OPENVINO_WEIGHTED, f"{kind}:{layer_name(op)}", not integer


def layer_name(op: Any) -> str:
    """Return the layer in an operator's name, such as `stem.0` for `__module.stem.0/aten::…`.

    If folding has removed the name, that of a following operator is used.
    """
    followers = (port.get_node() for output in op.outputs() for port in output.get_target_inputs())
    for name in (op.get_friendly_name(), *(follower.get_friendly_name() for follower in followers)):
        if name.startswith("__module."):
            return str(name.partition("/")[0].removeprefix("__module."))
    return str(op.get_friendly_name())


def _state(op: Any, kind: str, inputs: list[str]) -> tuple[str, bool | None]:
    """Return the state of an operator's output, and whether it computes in integers (None if it computes nothing).

    A state is "int8 constant", "constant", "quantized", "fed" or "float". Values in the state "fed" come from an
    operator with weights and are not quantized yet; operators that follow are fused into that operator.
    """
    data = [state for state in inputs if not state.endswith("constant")]
    if kind == "FakeQuantize":
        return "quantized", None
    if kind == "Constant":
        return ("int8 constant" if op.get_element_type().to_dtype() in (np.int8, np.uint8) else "constant"), None
    if kind == "Parameter":
        return "float", None
    if not data or kind in OPENVINO_MOVING:
        return inputs[0], None
    if kind in OPENVINO_WEIGHTED:
        return "fed", set(inputs[:2]) <= {"quantized", "int8 constant"}
    if kind in OPENVINO_FUSED and set(data) <= {"quantized", "fed"}:
        return "fed", True
    if kind in OPENVINO_INTEGER and set(data) == {"quantized"}:
        return "quantized", True
    return "float", False
