"""Rewrite an ONNX graph as ONNX Runtime's quantizer or its int8 kernels need it."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from edgekit.core.errors import ConversionError
from edgekit.models.files.onnx_batch import unused_name
from edgekit.targets.onnx.graph import drop_unused, used_names
from edgekit.targets.ranges import LOWEST_SCORE, mask_value

IMAGE_CHANNELS, CHANNEL_MULTIPLE = 3, 4
MIN_OUTPUT_CHANNELS = 16
PAD_OPSET = 11
"""The first operator set in which `Pad` takes its widths as a tensor."""


def widen_stem(content: bytes) -> bytes:
    """Pad the three channels of a quantized image to four before the first convolution.

    ONNX Runtime has a fast kernel for 8-bit convolutions with a multiple of four input channels and at least sixteen
    outputs (MLAS, `MlasConvSymPackWSize`). The weights of the fourth channel are zero, so the answers are the same bit
    for bit. The model is returned unchanged if it has no such convolution.
    """
    import onnx
    from onnx import helper, numpy_helper

    model = onnx.load_model_from_string(content)
    graph = model.graph
    stem = _stem(graph) if any(each.domain == "" and each.version >= PAD_OPSET for each in model.opset_import) else None
    if stem is None:
        return content
    quantize, weights = stem
    array = numpy_helper.to_array(weights)
    sides = [[0, 0]] * array.ndim
    sides[1] = [0, CHANNEL_MULTIPLE - IMAGE_CHANNELS]
    weights.CopyFrom(numpy_helper.from_array(np.pad(array, sides), weights.name))
    used = {name for node in graph.node for name in (*node.input, *node.output)}
    widths, wide = (unused_name(f"{quantize.input[0]}_{suffix}", used) for suffix in ("widths", "wide"))
    amounts = np.array([side[end] for end in (0, 1) for side in sides], dtype=np.int64)
    graph.initializer.append(numpy_helper.from_array(amounts, widths))
    index = list(graph.node).index(quantize)
    pad = helper.make_node("Pad", [quantize.input[0], widths], [wide], name=unused_name("widen", used))
    quantize.input[0] = wide
    graph.node.insert(index, pad)
    graph.ClearField("value_info")  # shapes of three channels
    return bytes(model.SerializeToString(deterministic=True))


def _stem(graph: Any) -> tuple[Any, Any] | None:
    """Return the node that quantizes the input and the int8 weights of the convolution after it, or None.

    The input must be the only one, and the convolution must be the only operator that takes it.
    """
    constants = {one.name: one for one in graph.initializer}
    sources = [one.name for one in graph.input if one.name not in constants]
    consumers: dict[str, list[Any]] = {}
    producers = {output: node for node in graph.node for output in node.output}
    for node in graph.node:
        for name in node.input:
            consumers.setdefault(name, []).append(node)
    chain: list[Any] = []
    name = sources[0] if len(sources) == 1 else ""
    for kind in ("QuantizeLinear", "DequantizeLinear", "Conv"):
        users = consumers.get(name, [])
        if len(users) != 1 or users[0].op_type != kind or users[0].input[0] != name:
            return None
        chain += users
        name = users[0].output[0]
    dequantize = producers.get(chain[-1].input[1])
    if dequantize is None or dequantize.op_type != "DequantizeLinear" or len(consumers[chain[-1].input[1]]) != 1:
        return None
    if any(one.name == "group" and one.i != 1 for one in chain[-1].attribute):
        return None  # with groups, the input has more than three channels
    weights = constants.get(dequantize.input[0])
    if weights is None or len(consumers[weights.name]) != 1 or not _fits(weights, dequantize, constants):
        return None
    return chain[0], weights


def _fits(weights: Any, dequantize: Any, constants: dict[str, Any]) -> bool:
    """Return whether the fast kernel takes these weights.

    They must be int8 with zero point 0 and with one scale in all or one for each output channel. They need three input
    channels, at least `MIN_OUTPUT_CHANNELS` output channels, and a kernel larger than 1x1.
    """
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
        and inputs == IMAGE_CHANNELS
        and outputs >= MIN_OUTPUT_CHANNELS
        and len(kernel) == 2
        and max(kernel) > 1
    )


LAYER = "Gemm"
"""Only for this layer, ONNX Runtime has a kernel with integer inputs and a float output. Other layers would compute in
float before a float output."""
CHAIN = ("DequantizeLinear", "QuantizeLinear", LAYER)


def keep_float_answers(content: bytes) -> bytes:
    """Remove QuantizeLinear and DequantizeLinear after a dense layer whose result is an output of the model.

    The model is returned unchanged if it has no such layer.

    ONNX Runtime's kernel for a quantized dense layer, `QGemm`, can return floats instead of integers. Without the two
    operators the file is 270 bytes smaller, and the answers are closer to those of the float network.
    """
    import onnx

    model = onnx.load_model_from_string(content)
    graph = model.graph
    producers = {name: node for node in graph.node for name in node.output}
    used = used_names(graph)
    removed = []
    for output in graph.output:
        chain = _chain(output.name, producers)
        if (
            chain
            and all(used.count(node.output[0]) == 1 for node in chain)
            and _has_integer_inputs(chain[-1], producers)
        ):
            dequantize, quantize, layer = chain
            layer.output[0] = output.name
            removed += [dequantize, quantize]
    if not removed:
        return content
    for node in removed:
        graph.node.remove(node)
    drop_unused(graph)
    return bytes(model.SerializeToString(deterministic=True))


def _chain(name: str, producers: dict[str, Any]) -> list[Any]:
    """Return the operators of CHAIN that lead to an output, the last first; empty if other operators lead to it."""
    chain = []
    for kind in CHAIN:
        node = producers.get(name)
        if node is None or node.op_type != kind:
            return []
        chain.append(node)
        name = node.input[0]
    return chain


def _has_integer_inputs(layer: Any, producers: dict[str, Any]) -> bool:
    """Return whether both factors are quantized, so that ONNX Runtime computes the layer in integers."""
    sides = [producers.get(name) for name in layer.input[:2]]
    return all(side is not None and side.op_type == "DequantizeLinear" for side in sides)


SIDES = ([2, 3], [-2, -1])
"""The axes of height and width, counted from the start or from the end."""
RANK = 4
SHAPES = {"Reshape", "Squeeze"}
"""If a QuantizeLinear follows one of these operators, ONNX Runtime moves it in front of the operator."""


def rename_global_pools(content: bytes) -> bytes:
    """Replace quantized means over height and width by `GlobalAveragePool`.

    The model is returned unchanged if it has no such means.

    The exporter writes `ReduceMean`, which ONNX Runtime computes in float and channels first, so that it needs a
    transpose, a DequantizeLinear and a QuantizeLinear. For the pool, it has an integer kernel that takes channels last,
    as the convolutions return them, and rounds once instead of twice.
    """
    import onnx
    from onnx import helper, shape_inference

    model = onnx.load_model_from_string(content)
    graph = shape_inference.infer_shapes(model).graph
    ranks = {each.name: len(each.type.tensor_type.shape.dim) for each in (*graph.input, *graph.value_info)}
    constants = {one.name: one for one in model.graph.initializer}
    producers = {name: node.op_type for node in model.graph.node for name in node.output}
    consumers: dict[str, list[Any]] = {}
    for node in model.graph.node:
        for name in node.input:
            consumers.setdefault(name, []).append(node)
    renamed = False
    for node in model.graph.node:
        uses_integers = (
            node.op_type == "ReduceMean"
            and producers.get(node.input[0]) == "DequantizeLinear"
            and _is_quantized(node.output[0], consumers)
        )
        if uses_integers and ranks.get(node.input[0]) == RANK and _over_sides(node, constants):
            node.CopyFrom(helper.make_node("GlobalAveragePool", node.input[:1], node.output, name=node.name))
            renamed = True
    if not renamed:
        return content
    drop_unused(model.graph)
    return bytes(model.SerializeToString(deterministic=True))


def _is_quantized(name: str, consumers: dict[str, list[Any]]) -> bool:
    """Return whether the only use of a tensor is to be quantized, perhaps after a change of its shape."""
    while len(consumers.get(name, ())) == 1 and consumers[name][0].op_type in SHAPES:
        name = consumers[name][0].output[0]
    return [each.op_type for each in consumers.get(name, ())] == ["QuantizeLinear"]


def _over_sides(node: Any, constants: dict[str, Any]) -> bool:
    """Return whether a mean is over height and width, and keeps them with size 1."""
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


BIAS = 2
BIASED = {"Conv", "ConvTranspose", "Gemm", "InstanceNormalization", "LayerNormalization", "BatchNormalization"}


def unshare_biases(model: Any) -> None:
    """Give each operator its own copy of a shared bias, in place; the outputs stay the same.

    ONNX Runtime's quantizer copies shared biases itself, because the scale of a bias depends on the operator's input
    and weights. It names a copy by appending a number: the seventh copy of `val_11` is `val_117`, which may already be
    the output of another operator, and then it fails with "Quantization parameter shared mode is not supported for
    weight". Exported group norms share their biases.
    """
    constants = {one.name: one for one in model.graph.initializer}
    used = {name for node in model.graph.node for name in (*node.input, *node.output)} | set(constants)
    biases: set[str] = set()
    for node in model.graph.node:
        name = node.input[BIAS] if node.op_type in BIASED and len(node.input) > BIAS else ""
        if name not in constants:
            continue
        if name in biases:
            copied = model.graph.initializer.add()
            copied.CopyFrom(constants[name])
            copied.name = node.input[BIAS] = unused_name(f"{name}_of_{node.name}", used)
        biases.add(name)


MASKING = ("Add", "Where")
"""Operators that apply a mask."""


def make_masks_finite(model: Any, samples: Iterable[Mapping[str, np.ndarray]]) -> None:
    """Replace -inf in masks by finite values, in place. The values depend on the scores that the samples give."""
    masks = [(tensor, array) for tensor, array in _constants(model) if (array < LOWEST_SCORE).any()]
    if masks:
        _fill(masks, 0.0)
        _fill(masks, mask_value(_spreads(model, samples)))


def _constants(model: Any) -> Iterator[tuple[Any, np.ndarray]]:
    """Yield the float constants that masking operators take."""
    from onnx import numpy_helper

    tensors = {one.name: one for one in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            tensors[node.output[0]] = node.attribute[0].t
    mask_inputs = {name for node in model.graph.node if node.op_type in MASKING for name in node.input}
    for tensor in (tensors[name] for name in sorted(mask_inputs & tensors.keys())):
        array = numpy_helper.to_array(tensor)
        if array.dtype == np.float32:
            yield tensor, array


def _fill(masks: Iterable[tuple[Any, np.ndarray]], mask: float) -> None:
    from onnx import numpy_helper

    for tensor, array in masks:
        tensor.CopyFrom(numpy_helper.from_array(np.where(array < LOWEST_SCORE, np.float32(mask), array), tensor.name))


def _spreads(model: Any, samples: Iterable[Mapping[str, np.ndarray]]) -> list[float]:
    """Return maximum - minimum of each input of a softmax, over all samples."""
    import onnx

    from edgekit.runner.backends.onnxruntime import session

    names = sorted({node.input[0] for node in model.graph.node if node.op_type == "Softmax"})
    if not names:
        return []
    probe = onnx.ModelProto()
    probe.CopyFrom(model)
    del probe.graph.output[:]
    probe.graph.output.extend(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in names)
    opened = session(probe.SerializeToString(), None)
    limits = [[(scores.min(), scores.max()) for scores in opened.run(None, dict(sample))] for sample in samples]
    lows, highs = np.moveaxis(np.array(limits), -1, 0)
    return [float(spread) for spread in highs.max(0) - lows.min(0)]


BLOCK = 32
COMPUTE_IN_INT8 = 4
"""Value of the operator's attribute `accuracy_level`."""
DENSE = ("Gemm", "MatMul")


def dense_layer_names(model: Any) -> list[str]:
    """Return the names of the dense layers with constant weights in a model. Raises ConversionError if it has none."""
    constants = {one.name for one in model.graph.initializer}
    names = [node.name for node in model.graph.node if node.op_type in DENSE and node.input[1] in constants]
    if not names:
        raise ConversionError(
            "onnx int4_dense: the network has no dense layer, and no other weights can be 4 bits here; leave "
            "int4_dense out of convert.precisions"
        )
    return names


def store_in_4_bits(content: bytes) -> bytes:
    """Store the weights of the float dense layers in 4 bits.

    Weights are symmetric, in blocks of 32 along the inputs, each with a scale in float32. The layers take and return
    float32 activations, which the kernel rounds to int8 by blocks. Convolutions are left out, because ONNX Runtime has
    no kernel with 4-bit weights for them and would unpack the weights to float when it loads the model.
    """
    import onnx
    from onnxruntime.quantization.onnx_model import ONNXModel

    model = ONNXModel(onnx.load_from_string(content))
    model.replace_gemm_with_matmul()
    maker = _quantizer()(model.model, bits=4, block_size=BLOCK, is_symmetric=True, accuracy_level=COMPUTE_IN_INT8)
    maker.process()
    quantized: bytes = maker.model.model.SerializeToString(deterministic=True)
    return quantized


def _quantizer() -> Any:
    """Import ONNX Runtime's quantizer without letting it enable logging for the whole process."""
    root, handler = logging.getLogger(), logging.NullHandler()
    root.addHandler(handler)  # with a handler, the module's `basicConfig` does nothing
    try:
        from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
    finally:
        root.removeHandler(handler)
    return MatMulNBitsQuantizer
