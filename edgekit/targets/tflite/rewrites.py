"""Changes of a TFLite file, before and after it is quantized."""

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
    """The float model with its dead channels' biases made representable; `ranges` are min and max by tensor name.

    A bias is stored as int32 in steps of (input scale × weight scale). ai-edge-quantizer gives a channel of zeros a
    weight scale near 1e-11. Its bias, which after folding a batch norm is the channel's whole output, then overflows
    and is clipped. Pruning single weights makes such channels: a depthwise network lost 23 dB to four of them. One
    weight of the channel is set to the smallest value for which the bias fits. That changes the output by less than a
    ten-thousandth of the bias.
    """
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


def flatten_biases(content: bytes) -> bytes:
    """The float model with biases of one axis; the file as it is where it has no others.

    A converter makes such a bias, (1, 1, 1, channels), where it folds a scale of four axes into a dense layer, as the
    layer scale of a ConvNeXt is.
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
"""Operators that put a mask's values in; as an end of a range -inf has another meaning."""
BEHIND = "SOFTMAX"


def make_masks_finite(content: bytes, ranges: Callable[[bytes], Mapping[str, Any]]) -> bytes:
    """The model with finite masks, as it is where it has none; `ranges` are min and max of a model's tensors."""
    unmasked = _replaced(content, 0.0)
    if unmasked is content:
        return content
    seen = ranges(unmasked)
    ends = [seen[name] for name in _masked(content) if name in seen]
    return _replaced(content, mask_value(float(np.max(each["max"]) - np.min(each["min"])) for each in ends))


def _replaced(content: bytes, mask: float) -> bytes:
    from edgekit.models.files import flatbuffer

    places: dict[int, np.ndarray] = {}
    model = None
    for model, graph, op, kind in float_ops.tflite_operators(content):
        for tensor in (graph.tensors[place] for place in op.inputs if place >= 0 and kind in MASKING):
            data = _floats(model, tensor)
            if data is not None and (data < LOWEST_SCORE).any():
                places[tensor.buffer] = data
    if model is None or not places:
        return content
    for place, data in places.items():
        model.buffers[place].data = np.where(data < LOWEST_SCORE, np.float32(mask), data).view(np.uint8)
    return flatbuffer.serialize(model)


def _floats(model: Any, tensor: Any) -> np.ndarray | None:
    from ai_edge_litert import schema_py_generated as schema

    data = model.buffers[tensor.buffer].data
    is_float = tensor.type == schema.TensorType.FLOAT32 and data is not None and len(data)
    return data.view(np.float32) if is_float else None


def _masked(content: bytes) -> list[str]:
    """Tensors that a mask is in: what softmax takes, and what the masking operators give."""
    found = []
    for _, graph, op, kind in float_ops.tflite_operators(content):
        places = op.inputs if kind == BEHIND else op.outputs if kind in MASKING else ()
        found += [graph.tensors[place].name.decode() for place in places]
    return found


def byte_range(values: np.ndarray | str | None) -> tuple[float, float] | None:
    """The range of an int8 input whose levels are the bytes; None where nothing is to be folded."""
    return (float(values[0]), float(values[-1])) if isinstance(values, np.ndarray) else None


def take_raw_bytes(content: bytes, values: np.ndarray | str) -> tuple[bytes, str]:
    """The file that takes bytes, or as it is, and what became of the steps, in words.

    Parameters
    ----------
    content
        The file.
    values
        Its input for each byte, (256,) float32; or why there are none, from `fold_preprocess.of_bytes`.

    A float file gets one operator in front, DEQUANTIZE, which multiplies as the runner does: the same bits. An int8
    file needs none: `ends` are given to its input's range, and each byte is a level of its own. The runner sees from
    the scale that bytes go in as they are, or less 128 (`runner/input_encoding.py`), and so does one that never heard
    of this.
    """
    if isinstance(values, str):
        return content, f"not folded: {values}"
    model = flatbuffer.parse(content)
    graph = model.subgraphs[0]
    if len(graph.inputs) != 1:
        return content, f"not folded: the file has {len(graph.inputs)} inputs"
    tensor = graph.tensors[graph.inputs[0]]
    if _is_float(tensor):
        found = fold_preprocess.find_scale(values)
        if isinstance(found, str):
            return content, f"not folded: {found}"
        _dequantize(model, *found)
        return flatbuffer.serialize(
            model
        ), f"folded: the input takes bytes, scale {found[0]:.8g}, zero point {found[1]}"
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


def strip_names(content: bytes) -> bytes:
    """The same model in fewer bytes: the same operators, numbers and outputs, input and output tensors still named.

    Gone are the inner tensors' names, signatures (the runner sets tensors by index), metadata and remarks.

    litert-torch names a tensor by the paths of all modules that were fused into it, up to a thousand bytes each. The
    quantizer writes a vector of zero points (eight bytes a channel, all zero) for every weight and again for its bias.
    """
    model = flatbuffer.parse(content)
    model.description = model.metadata = model.metadataBuffer = model.signatureDefs = None
    for graph in model.subgraphs:
        graph.name = None
        named = {*(int(place) for place in graph.inputs), *(int(place) for place in graph.outputs)}
        for place, tensor in enumerate(graph.tensors):
            if place not in named:
                tensor.name = None
    _drop_unused_buffers(model)
    return flatbuffer.serialize(model)


def _drop_unused_buffers(model: Any) -> None:
    """Buffer 0 stays: the format keeps it empty, for tensors without data."""
    tensors = [tensor for graph in model.subgraphs for tensor in graph.tensors]
    used = sorted({0, *(tensor.buffer for tensor in tensors)})
    model.buffers = [model.buffers[place] for place in used]
    for tensor in tensors:
        tensor.buffer = used.index(tensor.buffer)
