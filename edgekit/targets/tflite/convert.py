"""Convert to TFLite: litert-torch makes the float model, and ai-edge-quantizer casts its weights or quantizes it.

Images are NHWC. The int8 model takes and returns int8, with the scales in its own tensors. In `w8` (int8 weights, float
arithmetic) and `dynamic` (int8 activations by the range of each call), inputs and outputs stay float. `int4` stores the
weights of convolutions and dense layers in 4 bits, and everything else in int8. `int16x8` has int8 weights and int16
activations. `int4_dense` is `dynamic` with the weights of dense layers and embeddings in 4 bits. The recipes of `int4`
and `int4_dense` are made here, from recipes of ai-edge-quantizer with int8 weights.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.core.errors import ConversionError
from edgekit.models import files
from edgekit.models.files import flatbuffer
from edgekit.models.spec import read_spec
from edgekit.runner.bundle.manifest import TensorSpec
from edgekit.runner.input_vector import split
from edgekit.targets import float_ops, fold_preprocess, jobs, layers, model_file
from edgekit.targets.jobs import MINMAX, ConvertedFiles, Quantization, input_layout, output_layout
from edgekit.targets.model_file import ModelFile
from edgekit.targets.ranges import clip_ranges
from edgekit.targets.tflite import graph as operator_graph
from edgekit.targets.tflite import rewrites, sparse_weights
from edgekit.targets.tflite.rewrites import flatten_biases, keep_biases

if TYPE_CHECKING:
    from edgekit.targets.step import NetworkStep

IN_4_BITS = {"int4": ("CONV_2D", "FULLY_CONNECTED"), "int4_dense": ("FULLY_CONNECTED", "EMBEDDING_LOOKUP")}
"""Operators for which LiteRT has kernels with 4-bit weights; it has none for depthwise and transposed convolutions."""
UNCALIBRATED = ("w8", "dynamic", "int4_dense")
CALIBRATED = ("int8", "int16x8", "int4")
MAX_SCOPE_LENGTH = 10_000  # the part of an operator's name that ai-edge-quantizer compares


def calibrated_recipe(precision: str, in_float: Sequence[str]) -> Any:
    """Return the recipe for all operators except those whose output tensors are named in `in_float`.

    4-bit weights are clipped where that costs least (OCTAV: Sakr et al. 2022, "Optimal Clipping and Magnitude-aware
    Differentiation for Improved Quantization-aware Training"); int8 weights use their whole range.
    """
    from ai_edge_quantizer import algorithm_manager, qtyping, recipe, recipe_manager

    manager = recipe_manager.RecipeManager()
    manager.load_quantization_recipe(recipe.static_wi8_ai16() if precision == "int16x8" else recipe.static_wi8_ai8())
    for kind in IN_4_BITS.get(precision, ()):
        manager.add_static_config(
            ".*",
            qtyping.TFLOperationName[kind],
            activation_num_bits=8,
            weight_num_bits=4,
            algorithm_key=algorithm_manager.AlgorithmName.OCTAV,
        )
    for name in in_float:
        manager.add_quantization_config(
            f"^{re.escape(f'{name};'[:MAX_SCOPE_LENGTH])}$",
            qtyping.TFLOperationName.ALL_SUPPORTED,
            algorithm_key=algorithm_manager.AlgorithmName.NO_QUANTIZE,
        )
    return manager.get_quantization_recipe()


def uncalibrated_recipe(precision: str) -> Any:
    """Return the recipe for all operators; activations of `dynamic` and `int4_dense` get the range of each call."""
    from ai_edge_quantizer import qtyping, recipe, recipe_manager

    if precision == "w8":
        return recipe.weight_only_wi8_afp32()
    manager = recipe_manager.RecipeManager()
    manager.load_quantization_recipe(recipe.dynamic_wi8_afp32())
    for kind in IN_4_BITS.get(precision, ()):
        manager.add_dynamic_config(".*", qtyping.TFLOperationName[kind], num_bits=4)
    return manager.get_quantization_recipe()


PRECISIONS = ("fp32", "fp16", "int8", "w8", "dynamic", "int4", "int4_dense", "int16x8")
FILE = "model.tflite"
CASTABLE = ("FULLY_CONNECTED", "CONV_2D", "DEPTHWISE_CONV_2D", "CONV_2D_TRANSPOSE")
# the axis of the output channels in each operator's weights
OUTPUT_AXIS = {"FULLY_CONNECTED": 0, "CONV_2D": 0, "DEPTHWISE_CONV_2D": -1, "TRANSPOSE_CONV": 0}


def convert(
    model_folder: Path,
    precision: str,
    calibration: np.ndarray | None,
    out: Path,
    nncf_folder: Path | None = None,
    quantization: Quantization = MINMAX,
    fold: bool = False,
    sparse: bool = False,
) -> ConvertedFiles:
    """Write `model.tflite` into `out`; `calibration` is (n, C, H, W) or (n, F), float32.

    `nncf_folder` is not used: after QAT, the tuned float weights in `model_folder` are quantized like any others. With
    `fold`, the preprocess steps become the scale of the input if possible (`rewrites.py`). With `sparse`, weights are
    stored as sparse tensors if the file is then smaller and gives the same answers (`sparse_weights.py`).
    """
    values = _byte_values(model_folder) if fold else None
    source_file, names = model_file.read(model_folder), model_file.tensor_names(model_folder)
    if source_file is None:
        content, input_shape = float_model(model_folder)
        layout = input_layout(input_shape, "NHWC")
        converted = None
    else:
        content, converted = _convert_file(source_file, precision, calibration, names)
        layout = "ANY" if names else source_file.layout(_inputs(content, names)[0].shape)
    if converted is None and precision in IN_4_BITS:
        _check_weights(content, precision)
    if converted is not None:
        content = converted
    elif precision == "fp16":
        content = _cast_weights(content)
    elif precision in CALIBRATED:
        if calibration is None:
            raise ConversionError(f"tflite {precision}: no calibration samples")
        samples = calibration.transpose(0, 2, 3, 1) if layout == "NHWC" else calibration
        float_layers = layers.read_layers(model_folder, quantization.keep_float)
        tail, bounds = layers.float_tail(model_folder), rewrites.byte_range(values)
        inputs = _inputs(content, names)
        content = _quantize(content, precision, inputs, samples, quantization, float_layers, tail, bounds)
    elif precision in UNCALIBRATED:
        content = _quantize_weights(content, uncalibrated_recipe(precision))
    finished = source_file is not None and source_file.is_quantized
    still_float = float_ops.tflite(content, finished) if precision in CALIBRATED else ()
    named, content = content, rewrites.strip_names(content)
    debris = layers.rows_or_none("tflite: redundant operators", lambda: operator_graph.read(content, named))
    folding, zeros = "", ""
    if values is not None:
        content, folding = rewrites.take_raw_bytes(content, values)
    if sparse:
        content, zeros = sparse_weights.encode(content, _samples(calibration, layout, _inputs(content, names)))
    out.mkdir(parents=True, exist_ok=True)
    (out / FILE).write_bytes(content)
    sources, results = _inputs(content, names), _outputs(content)
    results = results if source_file is None else source_file.needed.in_task_order(results)
    if not names:
        sources = (replace(sources[0], layout=layout),)
    not_offered: tuple[str, ...] = ()
    if precision == "int8" and quantization.bias_correction:
        not_offered = ("bias_correction",)
    if converted is not None and precision == "int8" and quantization.ranges != MINMAX.ranges:
        not_offered += (f"{quantization.ranges} ranges",)
    return ConvertedFiles(
        (FILE,), sources, results, still_float, not_offered, debris, folding=folding, sparse_weights=zeros
    )


def _samples(
    calibration: np.ndarray | None, layout: str, sources: Sequence[TensorSpec]
) -> dict[str, np.ndarray] | None:
    """Return the float samples of each input by its name; None if there are none."""
    if calibration is None:
        return None
    rows = calibration.transpose(0, 2, 3, 1) if layout == "NHWC" else calibration
    parts = [rows] if len(sources) == 1 else split(rows, [each.shape[1:] for each in sources])
    return {each.name: part for each, part in zip(sources, parts, strict=True)}


def _byte_values(model_folder: Path) -> np.ndarray | str:
    spec = read_spec(model_folder)
    return fold_preprocess.byte_values(spec.preprocess, spec.raw)


@lru_cache(maxsize=2)  # all precisions of one model share it
def float_model(model_folder: Path) -> tuple[bytes, tuple[int, ...]]:
    """Convert a saved network to a float model; return it with the shape of a sample, as in the network's spec."""
    import litert_torch

    from edgekit.models import store
    from edgekit.models.reparameterize import deployment_network
    from edgekit.models.several_inputs import export_inputs
    from edgekit.targets.tflite.lowering import LoweredNetwork
    from edgekit.targets.torch_graph import fold_batchnorms, plain_attention

    module, spec = store.load(model_folder)
    network, arguments, names = export_inputs(deployment_network(module, spec), store.zero_sample(spec))
    network = fold_batchnorms(network)
    network = LoweredNetwork(network).eval() if LoweredNetwork.applies_to(network, arguments) else network
    if len(spec.input_shape) == 3:
        network = litert_torch.to_channel_last_io(network, args=[0]).eval()
        arguments = (arguments[0].permute(0, 2, 3, 1).contiguous(),)
    with tempfile.TemporaryDirectory() as folder, plain_attention():
        path = Path(folder) / FILE
        litert_torch.convert(network, arguments).export(str(path))
        content = path.read_bytes()
    if len(names) > 1:
        content = flatbuffer.name_inputs(content, {f"args_{index}": name for index, name in enumerate(names)})
    return content, spec.input_shape


def _convert_file(
    source: ModelFile, precision: str, calibration: np.ndarray | None, names: tuple[str, ...]
) -> tuple[bytes, bytes | None]:
    """Return the float model of a user's file, and the model in `precision` if the file's framework can make it."""
    if source.is_quantized:
        finished = flatbuffer.with_signature_names(
            source.convert("tflite", precision, None, source.sample_shape), names
        )
        return finished, finished
    content = flatbuffer.with_signature_names(_float_file(source), names)
    if precision not in getattr(files.module(source.source.kind), "TFLITE", ()):
        return content, None
    samples = None
    if calibration is not None:
        inputs = _inputs(content, names)
        parts = jobs.input_parts(calibration if names else source.arrange(calibration, inputs[0].shape), inputs)
        samples = dict(zip([each.name for each in inputs], parts, strict=True))
    return content, flatbuffer.with_signature_names(
        source.convert("tflite", precision, samples, source.sample_shape), names
    )


@lru_cache(maxsize=2)
def _float_file(source: ModelFile) -> bytes:
    content: bytes = source.convert("tflite", "fp32", None, source.sample_shape)
    return content


def _inputs(content: bytes, names: Sequence[str]) -> tuple[TensorSpec, ...]:
    """Return the specs of the inputs, in the order of `names` if there are several."""
    from ai_edge_litert.interpreter import Interpreter

    return jobs.inputs_in_order([_spec(each) for each in Interpreter(model_content=content).get_input_details()], names)


def _outputs(content: bytes) -> tuple[TensorSpec, ...]:
    from ai_edge_litert.interpreter import Interpreter

    return tuple(_spec(each) for each in Interpreter(model_content=content).get_output_details())


def _spec(detail: Any) -> TensorSpec:
    shape = tuple(int(side) for side in detail["shape"])
    return TensorSpec(detail["name"], shape, np.dtype(detail["dtype"]).name, output_layout(shape))


def _cast_weights(content: bytes) -> bytes:
    """Store the weights of convolutions and dense layers as float16; the arithmetic stays float32."""
    from ai_edge_quantizer import algorithm_manager, qtyping, quantizer

    weights = qtyping.TensorQuantizationConfig(num_bits=16, dtype=qtyping.TensorDataType.FLOAT)
    config = qtyping.OpQuantizationConfig(
        weight_tensor_config=weights, compute_precision=qtyping.ComputePrecision.FLOAT, explicit_dequantize=True
    )
    caster = quantizer.Quantizer(content)
    for op in CASTABLE:
        caster.update_quantization_recipe(
            ".*",
            qtyping.TFLOperationName[op],
            op_config=config,
            algorithm_key=algorithm_manager.AlgorithmName.FLOAT_CASTING,
        )
    return bytes(caster.quantize().quantized_model)


def _quantize_weights(content: bytes, recipe: Any) -> bytes:
    from ai_edge_quantizer import quantizer

    maker = quantizer.Quantizer(content)
    maker.load_quantization_recipe(recipe)
    return bytes(maker.quantize().quantized_model)


def _check_weights(content: bytes, precision: str) -> None:
    """Raise ConversionError if no operator has weights that this precision stores in 4 bits."""
    kinds = IN_4_BITS[precision]
    if not any(kind in kinds for *_, kind in float_ops.tflite_operators(content)):
        raise ConversionError(
            f"tflite {precision}: the network has none of {', '.join(kinds)}, whose weights it stores in 4 bits; "
            f"leave {precision} out of convert.precisions"
        )


def _quantize(
    content: bytes,
    precision: str,
    sources: Sequence[TensorSpec],
    calibration: np.ndarray,
    quantization: Quantization,
    float_layers: Sequence[layers.WeightedLayer],
    tail: Sequence[layers.WeightedLayer] = (),
    bounds: tuple[float, float] | None = None,
) -> bytes:
    """Quantize statically: weights per channel, activations per tensor, with ranges from `calibration`.

    `bounds` is the range of the input if it is known exactly. By default, the quantizer would take a moving average
    over the samples, which clips all samples but the last ones and depends on their order. The reference networks on
    digits would then reach an SNR of 10 to 11 dB instead of 27 to 33 dB.
    """
    from ai_edge_litert.interpreter import Interpreter
    from ai_edge_quantizer import calibrator, quantizer, recipe_manager
    from ai_edge_quantizer.utils import qsv_utils

    content = flatten_biases(content)
    [signature] = Interpreter(model_content=content).get_signature_list()
    parts = dict(zip([each.name for each in sources], jobs.input_parts(calibration, sources), strict=True))
    samples = [{name: part[index : index + 1] for name, part in parts.items()} for index in range(len(calibration))]
    arguments = flatbuffer.signature_names(content)
    float_names = layers.matching_operators(float_layers, _constants(content), "tflite")
    if tail:
        begins = layers.matching_operators(tail, _constants(content), "tflite")
        operators = [(graph, op) for _, graph, op, _ in float_ops.tflite_operators(content)]
        float_names += layers.with_followers(
            begins, ((graph.tensors[op.outputs[0]].name.decode(), op.inputs, op.outputs) for graph, op in operators)
        )
    recipe = calibrated_recipe(precision, [*float_names, *_float_inputs(content, float_names)])
    recipes = recipe_manager.RecipeManager()
    recipes.load_quantization_recipe(recipe)
    feeds = [{arguments[name]: part for name, part in sample.items()} for sample in samples]

    def calibrate(model: bytes) -> dict[str, Any]:
        observer = calibrator.Calibrator(model, num_threads=1, qsv_update_func=qsv_utils.min_max_update)
        observer.calibrate({signature: feeds}, recipes)
        return dict(observer.get_model_qsvs())

    content = rewrites.make_masks_finite(content, calibrate)
    ranges = calibrate(content)
    if quantization.ranges == "percentile":
        ranges = clip_ranges(content, samples, ranges)
    if bounds is not None and sources[0].name in ranges:  # missing if the input stays in float
        input_range = ranges[sources[0].name]
        input_range.update(
            {key: np.full_like(input_range[key], value) for key, value in zip(("min", "max"), bounds, strict=True)}
        )
    maker = quantizer.Quantizer(keep_biases(content, ranges))
    maker.load_quantization_recipe(recipe)
    return bytes(maker.quantize(ranges).quantized_model)


def _float_inputs(content: bytes, float_names: Sequence[str]) -> list[str]:
    """Return the inputs that only float operators use, and the tensors in which such an input is padded or reshaped."""
    operators = list(float_ops.tflite_operators(content))

    def only_for_float(graph: Any, tensor: int) -> list[str] | None:
        names = [graph.tensors[tensor].name.decode()]
        consumers = [(op, kind) for _, owner, op, kind in operators if owner is graph and tensor in op.inputs]
        for op, kind in consumers:
            if graph.tensors[op.outputs[0]].name.decode() in float_names:
                continue
            following = only_for_float(graph, op.outputs[0]) if kind in float_ops.TFLITE_MOVING else None
            if following is None:
                return None
            names += following
        return names if consumers else None

    graphs = {id(graph): graph for _, graph, _, _ in operators}.values()
    return [name for graph in graphs for tensor in graph.inputs for name in only_for_float(graph, tensor) or []]


def _constants(content: bytes) -> dict[str, np.ndarray]:
    """Return the weights of each operator by its output tensor's name, (output channels, weights of one channel)."""
    arrays = {}
    for model, graph, op, kind in float_ops.tflite_operators(content):
        data = None
        if kind in OUTPUT_AXIS:
            weights = graph.tensors[op.inputs[1]]
            data = model.buffers[weights.buffer].data
        if data is not None:
            array = np.moveaxis(data.view(np.float32).reshape(weights.shape), OUTPUT_AXIS[kind], 0)
            arrays[graph.tensors[op.outputs[0]].name.decode()] = array.reshape(len(array), -1)
    return arrays


def write_step(step: NetworkStep, out: Path) -> list[Path]:
    """Write `model.tflite` for a network's step, with the step's names; images are NHWC. Return its path."""
    import litert_torch

    network, example = step.network, step.example
    if len(step.input_shape) == 3:
        network = litert_torch.to_channel_last_io(network, args=[0]).eval()
        example = (example[0].permute(0, 2, 3, 1).contiguous(), *example[1:])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / FILE
        litert_torch.convert(network, example).export(str(path))
        model = flatbuffer.parse(path.read_bytes())
    _name_step(model, step)
    (out / FILE).write_bytes(rewrites.strip_names(flatbuffer.serialize(model)))
    return [out / FILE]


def _name_step(model: Any, step: NetworkStep) -> None:
    """Name inputs and outputs by the signature, which numbers the arguments and results of `forward`."""
    [signature] = model.signatureDefs
    graph = model.subgraphs[signature.subgraphIndex]
    assigned: dict[int, str] = {}
    for ports, names in ((signature.inputs, step.inputs), (signature.outputs, step.outputs)):
        for port in ports:
            index = port.tensorIndex
            name = names[int(port.name.decode().rpartition("_")[2])]
            if index in assigned:
                raise ConversionError(
                    f"tflite: {assigned[index]} and {name} are one tensor; compute them separately, such as by x * 1.0"
                )
            assigned[index] = name
            graph.tensors[index].name = name.encode()
    if len(assigned) != len(step.inputs) + len(step.outputs):
        raise ConversionError(
            f"tflite: the file has {len(assigned)} inputs and outputs; the step has others: does it use every state?"
        )
