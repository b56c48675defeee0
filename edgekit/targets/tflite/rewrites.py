"""Rewrites of a TFLite file, before and after it is quantized."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from edgekit.models.files import flatbuffer
from edgekit.targets import float_ops, fold_preprocess
from edgekit.targets.fold_preprocess import BYTES
from edgekit.targets.ranges import LOWEST_SCORE, mask_value

CHANNEL_AXIS = {"CONV_2D": 0, "DEPTHWISE_CONV_2D": 3, "FULLY_CONNECTED": 0}
WEIGHT, BIAS = 1, 2
LARGEST_BIAS_STEPS = 2**29
LEVELS = 127
SMALLEST_RANGE = 1e-6


def keep_biases(content: bytes, ranges: Mapping[str, Mapping[str, Any]]) -> bytes:
    """Make biases representable in channels whose weights are all zero.

    `ranges` has the minimum and maximum of each tensor by its name.

    A bias is stored as int32 in steps of (input scale × weight scale). ai-edge-quantizer gives a channel of zeros a
    weight scale near 1e-11. The bias of such a channel, which is its whole output after a batch norm was folded, then
    overflows and is clipped. Unstructured pruning creates such channels: a depthwise network lost 23 dB because of four
    of them. One weight of the channel is therefore set to the smallest value for which the bias fits, which changes the
    output by less than a ten-thousandth of the bias.
    """
    from ai_edge_litert import schema_py_generated as schema

    edited = bytearray(content)
    model = schema.Model.GetRootAs(edited, 0)
    for graph, op, axis in _weighted_operators(schema, model):
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


def _weighted_operators(schema: Any, model: Any) -> Iterator[tuple[Any, Any, int]]:
    axes = {getattr(schema.BuiltinOperator, name): axis for name, axis in CHANNEL_AXIS.items()}
    for graph in (model.Subgraphs(index) for index in range(model.SubgraphsLength())):
        for op in (graph.Operators(index) for index in range(graph.OperatorsLength())):
            code = model.OperatorCodes(op.OpcodeIndex())
            axis = axes.get(max(code.BuiltinCode(), code.DeprecatedBuiltinCode()))
            if axis is not None and op.InputsLength() > BIAS:
                yield graph, op, axis


def _values(model: Any, graph: Any, op: Any, index: int) -> np.ndarray | None:
    """Return a writable float32 view of a constant input, or None if it is absent or not constant."""
    if op.Inputs(index) < 0:
        return None
    tensor = graph.Tensors(op.Inputs(index))
    data = model.Buffers(tensor.Buffer()).DataAsNumpy()
    if isinstance(data, int) or len(data) == 0:
        return None
    return data.view(np.float32).reshape(tensor.ShapeAsNumpy())


def flatten_biases(content: bytes) -> bytes:
    """Flatten biases of several axes to one axis; a file without such biases is returned unchanged.

    A converter makes a bias of shape (1, 1, 1, channels) when it folds a scale of four axes into a dense layer, for
    example the layer scale of a ConvNeXt.
    """
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
    return flatbuffer.serialize(model) if several else content


MASKING = ("ADD", "SELECT", "SELECT_V2", "WHERE")
"""Operators that apply a mask. In other operators, such as a limit of a range, -inf has another meaning."""
SOFTMAX = "SOFTMAX"


def make_masks_finite(content: bytes, ranges: Callable[[bytes], Mapping[str, Any]]) -> bytes:
    """Replace -inf in masks by finite values; a model without masks is returned unchanged.

    `ranges` calibrates a model and returns min and max of its tensors by name.
    """
    unmasked = _replace_masks(content, 0.0)
    if unmasked is content:
        return content
    calibrated = ranges(unmasked)
    scores = [calibrated[name] for name in _score_tensors(content) if name in calibrated]
    return _replace_masks(content, mask_value(float(np.max(each["max"]) - np.min(each["min"])) for each in scores))


def _replace_masks(content: bytes, mask: float) -> bytes:
    masks: dict[int, np.ndarray] = {}
    model = None
    for model, graph, op, kind in float_ops.tflite_operators(content):
        for tensor in (graph.tensors[index] for index in op.inputs if index >= 0 and kind in MASKING):
            data = _floats(model, tensor)
            if data is not None and (data < LOWEST_SCORE).any():
                masks[tensor.buffer] = data
    if model is None or not masks:
        return content
    for buffer, data in masks.items():
        model.buffers[buffer].data = np.where(data < LOWEST_SCORE, np.float32(mask), data).view(np.uint8)
    return flatbuffer.serialize(model)


def _floats(model: Any, tensor: Any) -> np.ndarray | None:
    from ai_edge_litert import schema_py_generated as schema

    data = model.buffers[tensor.buffer].data
    is_float = tensor.type == schema.TensorType.FLOAT32 and data is not None and len(data)
    return data.view(np.float32) if is_float else None


def _score_tensors(content: bytes) -> list[str]:
    """Return the tensors that contain a mask: the inputs of softmax, and the outputs of masking operators."""
    names = []
    for _, graph, op, kind in float_ops.tflite_operators(content):
        indices = op.inputs if kind == SOFTMAX else op.outputs if kind in MASKING else ()
        names += [graph.tensors[index].name.decode() for index in indices]
    return names


def byte_range(values: np.ndarray | str | None) -> tuple[float, float] | None:
    """Return the range of an int8 input whose integers are the bytes; None if nothing is folded."""
    return (float(values[0]), float(values[-1])) if isinstance(values, np.ndarray) else None


def take_raw_bytes(content: bytes, values: np.ndarray | str) -> tuple[bytes, str]:
    """Fold the preprocess steps into a file, so that it takes bytes.

    A float file gets one operator at its input, DEQUANTIZE, which computes the same bits as the runner. An int8 file
    needs no operator: its input has the range of `byte_range`, so that each byte is one of its integers. The runner
    knows from the scale that bytes are passed unchanged, or minus 128 (`edgekit.runner.input_encoding`).

    Parameters
    ----------
    content
        The file.
    values
        The input for each byte, (256,) float32; or why there are none, from `fold_preprocess.byte_values`.

    Returns
    -------
    tuple
        The file, and a text that says whether the steps were folded. The file is the same if they were not.
    """
    if isinstance(values, str):
        return content, f"not folded: {values}"
    model = flatbuffer.parse(content)
    graph = model.subgraphs[0]
    if len(graph.inputs) != 1:
        return content, f"not folded: the file has {len(graph.inputs)} inputs"
    tensor = graph.tensors[graph.inputs[0]]
    if _is_float(tensor):
        quantization = fold_preprocess.find_scale(values)
        if isinstance(quantization, str):
            return content, f"not folded: {quantization}"
        scale, zero = quantization
        _insert_dequantize(model, scale, zero)
        summary = f"folded: the input takes bytes, scale {scale:.8g}, zero point {zero}"
        return flatbuffer.serialize(model), summary
    return content, _compare_levels(tensor, values)


def _is_float(tensor: Any) -> bool:
    from ai_edge_litert import schema_py_generated as schema

    return bool(tensor.type == schema.TensorType.FLOAT32)


def _compare_levels(tensor: Any, values: np.ndarray) -> str:
    """Say whether a quantized input represents the value of each byte by the integer that the runner passes for it."""
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


def _insert_dequantize(model: Any, scale: float, zero: int) -> None:
    """Insert DEQUANTIZE at the start of the main graph, with its input as the graph's input."""
    from ai_edge_litert import schema_py_generated as schema

    graph, code = model.subgraphs[0], schema.OperatorCodeT()
    code.builtinCode = code.deprecatedBuiltinCode = schema.BuiltinOperator.DEQUANTIZE
    code.version = 1  # the version for uint8
    model.operatorCodes.append(code)
    new_index, [old_index] = len(graph.tensors), graph.inputs
    real, byte_input = graph.tensors[old_index], schema.TensorT()
    byte_input.name, real.name = real.name, b""
    byte_input.shape, byte_input.shapeSignature, byte_input.hasRank = real.shape, real.shapeSignature, real.hasRank
    byte_input.type, byte_input.buffer = schema.TensorType.UINT8, 0  # the first buffer is the empty one
    byte_input.quantization = schema.QuantizationParametersT()
    byte_input.quantization.scale, byte_input.quantization.zeroPoint = [scale], [zero]
    graph.tensors.append(byte_input)
    operator = schema.OperatorT()
    operator.opcodeIndex = len(model.operatorCodes) - 1
    operator.inputs, operator.outputs = [new_index], [int(old_index)]
    graph.operators.insert(0, operator)
    graph.inputs = [new_index]
    for signature in model.signatureDefs or ():
        for port in signature.inputs:
            port.tensorIndex = new_index if port.tensorIndex == old_index else port.tensorIndex


def strip_names(content: bytes) -> bytes:
    """Return the same model in fewer bytes, with the same operators, numbers and names of inputs and outputs.

    The names of inner tensors, signatures, metadata and remarks are removed; the runner sets tensors by index.
    litert-torch names a tensor after the paths of all modules that were fused into it, with up to a thousand bytes. The
    quantizer writes a vector of zero points (eight bytes for each channel, all zero) for every weight and for its bias,
    and equal vectors are now stored once.
    """
    model = flatbuffer.parse(content)
    model.description = model.metadata = model.metadataBuffer = model.signatureDefs = None
    for graph in model.subgraphs:
        graph.name = None
        ports = {*(int(index) for index in graph.inputs), *(int(index) for index in graph.outputs)}
        for index, tensor in enumerate(graph.tensors):
            if index not in ports:
                tensor.name = None
    _drop_unused_buffers(model)
    return flatbuffer.serialize(model)


def _drop_unused_buffers(model: Any) -> None:
    """Remove buffers that no tensor uses, except buffer 0, the empty one, to which tensors without data refer."""
    tensors = [tensor for graph in model.subgraphs for tensor in graph.tensors]
    used = sorted({0, *(tensor.buffer for tensor in tensors)})
    model.buffers = [model.buffers[index] for index in used]
    for tensor in tensors:
        tensor.buffer = used.index(tensor.buffer)
