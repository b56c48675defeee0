"""TFLite: litert-torch makes the float model, ai-edge-quantizer casts its weights or quantizes it.

Images enter as NHWC. The int8 model takes and gives int8, with the scales in its own tensors; after `w8` (weights int8,
arithmetic float) and `dynamic` (activations int8 by each call's own range) both ends stay float. ai-edge-quantizer has
no recipe of its own for some precisions, so they are made here: `int4` stores the weights of convolutions and dense
layers in 4 bits; all else is int8. `int16x8` has int8 weights under int16 activations. `int4_dense` is the `dynamic` of
other layers, with dense layers and embeddings in 4 bits.
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
"""Operators of which LiteRT has kernels with 4-bit weights; of depthwise and transposed convolutions it has none."""
UNCALIBRATED = ("w8", "dynamic", "int4_dense")
CALIBRATED = ("int8", "int16x8", "int4")
LONGEST_SCOPE = 10_000  # what ai-edge-quantizer looks at of an operator's name


def calibrated_recipe(precision: str, in_float: Sequence[str]) -> Any:
    """For all operators but those whose output tensors are named.

    4-bit weights are clipped where that costs least (OCTAV: Sakr et al. 2022, "Optimal Clipping and Magnitude-aware
    Differentiation for Improved Quantization-aware Training"); for int8 ones the whole range serves as well.
    """
    from ai_edge_quantizer import algorithm_manager, qtyping, recipe, recipe_manager

    made = recipe_manager.RecipeManager()
    made.load_quantization_recipe(recipe.static_wi8_ai16() if precision == "int16x8" else recipe.static_wi8_ai8())
    for kind in IN_4_BITS.get(precision, ()):
        made.add_static_config(
            ".*",
            qtyping.TFLOperationName[kind],
            activation_num_bits=8,
            weight_num_bits=4,
            algorithm_key=algorithm_manager.AlgorithmName.OCTAV,
        )
    for name in in_float:
        made.add_quantization_config(
            f"^{re.escape(f'{name};'[:LONGEST_SCOPE])}$",
            qtyping.TFLOperationName.ALL_SUPPORTED,
            algorithm_key=algorithm_manager.AlgorithmName.NO_QUANTIZE,
        )
    return made.get_quantization_recipe()


def uncalibrated_recipe(precision: str) -> Any:
    """For all operators; under `dynamic` and `int4_dense` activations are quantized by the range of each call."""
    from ai_edge_quantizer import qtyping, recipe, recipe_manager

    if precision == "w8":
        return recipe.weight_only_wi8_afp32()
    made = recipe_manager.RecipeManager()
    made.load_quantization_recipe(recipe.dynamic_wi8_afp32())
    for kind in IN_4_BITS.get(precision, ()):
        made.add_dynamic_config(".*", qtyping.TFLOperationName[kind], num_bits=4)
    return made.get_quantization_recipe()


PRECISIONS = ("fp32", "fp16", "int8", "w8", "dynamic", "int4", "int4_dense", "int16x8")
FILE = "model.tflite"
CASTABLE = ("FULLY_CONNECTED", "CONV_2D", "DEPTHWISE_CONV_2D", "CONV_2D_TRANSPOSE")
# output channels in front, for each operator's weights
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
    """Write `model.tflite` into `out`; `calibration` is (n, C, H, W) or (n, F) float32.

    `nncf_folder` is not needed: after QAT the tuned float weights in `model_folder` are quantized like any others.
    With `fold` the preprocess steps become the input's scale, where they can (`rewrites.py`). With `sparse` zeros of
    weights are stored as such, where the file is smaller and answers the same bits (`sparse_weights.py`).
    """
    values = _of_bytes(model_folder) if fold else None
    source_file, names = model_file.read(model_folder), model_file.tensor_names(model_folder)
    if source_file is None:
        content, input_shape = float_model(model_folder)
        layout = input_layout(input_shape, "NHWC")
        made = None
    else:
        content, made = _of_file(source_file, precision, calibration, names)
        layout = "ANY" if names else source_file.layout(_inputs(content, names)[0].shape)
    if made is None and precision in IN_4_BITS:
        _refuse_without_weights(content, precision)
    if made is not None:
        content = made
    elif precision == "fp16":
        content = _cast_weights(content)
    elif precision in CALIBRATED:
        if calibration is None:
            raise ConversionError(f"tflite {precision}: no calibration samples")
        samples = calibration.transpose(0, 2, 3, 1) if layout == "NHWC" else calibration
        kept = layers.read_layers(model_folder, quantization.keep_float)
        ends = rewrites.byte_range(values)
        content = _quantize(content, precision, _inputs(content, names), samples, quantization, kept, ends)
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
    if made is not None and precision == "int8" and quantization.ranges != MINMAX.ranges:
        not_offered += (f"{quantization.ranges} ranges",)
    return ConvertedFiles(
        (FILE,), sources, results, still_float, not_offered, debris, folding=folding, sparse_weights=zeros
    )


def _samples(
    calibration: np.ndarray | None, layout: str, sources: Sequence[TensorSpec]
) -> dict[str, np.ndarray] | None:
    """What each input takes of the samples, by its name, before any quantization; None where there are none."""
    if calibration is None:
        return None
    rows = calibration.transpose(0, 2, 3, 1) if layout == "NHWC" else calibration
    parts = [rows] if len(sources) == 1 else split(rows, [each.shape[1:] for each in sources])
    return {each.name: part for each, part in zip(sources, parts, strict=True)}


def _of_bytes(model_folder: Path) -> np.ndarray | str:
    spec = read_spec(model_folder)
    return fold_preprocess.byte_values(spec.preprocess, spec.raw)


@lru_cache(maxsize=2)  # all precisions of one model share it
def float_model(model_folder: Path) -> tuple[bytes, tuple[int, ...]]:
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
        content = flatbuffer.name_inputs(content, {f"args_{place}": name for place, name in enumerate(names)})
    return content, spec.input_shape


def _of_file(
    source: ModelFile, precision: str, calibration: np.ndarray | None, names: tuple[str, ...]
) -> tuple[bytes, bytes | None]:
    """The float model of a user's file; and the precision itself, where its own framework makes that."""
    if source.is_quantized:
        finished = flatbuffer.with_signature_names(
            source.convert("tflite", precision, None, source.sample_shape), names
        )
        return finished, finished
    content = flatbuffer.with_signature_names(_float_of_file(source), names)
    if precision not in getattr(files.module(source.source.kind), "TFLITE", ()):
        return content, None
    samples = None
    if calibration is not None:
        taken = _inputs(content, names)
        parts = jobs.input_parts(calibration if names else source.arrange(calibration, taken[0].shape), taken)
        samples = dict(zip([each.name for each in taken], parts, strict=True))
    return content, flatbuffer.with_signature_names(
        source.convert("tflite", precision, samples, source.sample_shape), names
    )


@lru_cache(maxsize=2)
def _float_of_file(source: ModelFile) -> bytes:
    made: bytes = source.convert("tflite", "fp32", None, source.sample_shape)
    return made


def _inputs(content: bytes, names: Sequence[str]) -> tuple[TensorSpec, ...]:
    """One, or those of these names in their order."""
    from ai_edge_litert.interpreter import Interpreter

    return jobs.inputs_in_order([_spec(each) for each in Interpreter(model_content=content).get_input_details()], names)


def _outputs(content: bytes) -> tuple[TensorSpec, ...]:
    from ai_edge_litert.interpreter import Interpreter

    return tuple(_spec(each) for each in Interpreter(model_content=content).get_output_details())


def _spec(detail: Any) -> TensorSpec:
    shape = tuple(int(side) for side in detail["shape"])
    return TensorSpec(detail["name"], shape, np.dtype(detail["dtype"]).name, output_layout(shape))


def _cast_weights(content: bytes) -> bytes:
    """Weights of convolutions and dense layers stored as float16; arithmetic stays float32."""
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


def _refuse_without_weights(content: bytes, precision: str) -> None:
    """ConversionError where no operator has weights that this precision stores in 4 bits."""
    wanted = IN_4_BITS[precision]
    if not any(kind in wanted for *_, kind in float_ops.tflite_operators(content)):
        raise ConversionError(
            f"tflite {precision}: the network has none of {', '.join(wanted)}, whose weights it stores in 4 bits; "
            f"leave {precision} out of convert.precisions"
        )


def _quantize(
    content: bytes,
    precision: str,
    sources: Sequence[TensorSpec],
    calibration: np.ndarray,
    quantization: Quantization,
    kept: Sequence[layers.WeightedLayer],
    ends: tuple[float, float] | None = None,
) -> bytes:
    """Static integers: weights per channel, activations per tensor, over the whole range that `calibration` shows.

    `ends` are the range of the one input, where that is known better.

    The quantizer's own default is a moving average over samples, which clips all but the last ones and depends on their
    order. It gives 10 to 11 dB against 27 to 33 dB for the reference networks on digits.
    """
    from ai_edge_litert.interpreter import Interpreter
    from ai_edge_quantizer import calibrator, quantizer, recipe_manager
    from ai_edge_quantizer.utils import qsv_utils

    content = flatten_biases(content)
    [signature] = Interpreter(model_content=content).get_signature_list()
    parts = dict(zip([each.name for each in sources], jobs.input_parts(calibration, sources), strict=True))
    samples = [{name: part[place : place + 1] for name, part in parts.items()} for place in range(len(calibration))]
    arguments = flatbuffer.signature_names(content)
    float_names = layers.matching_operators(kept, _constants(content), "tflite")
    recipe = calibrated_recipe(precision, [*float_names, *_before(content, float_names)])
    wanted = recipe_manager.RecipeManager()
    wanted.load_quantization_recipe(recipe)
    given = [{arguments[name]: part for name, part in sample.items()} for sample in samples]

    def ranges(model: bytes) -> dict[str, Any]:
        seen = calibrator.Calibrator(model, num_threads=1, qsv_update_func=qsv_utils.min_max_update)
        seen.calibrate({signature: given}, wanted)
        return dict(seen.get_model_qsvs())

    content = rewrites.make_masks_finite(content, ranges)
    found = ranges(content)
    if quantization.ranges == "percentile":
        found = clip_ranges(content, samples, found)
    if ends is not None and sources[0].name in found:  # layers kept in float may leave the input in float too
        known = found[sources[0].name]
        known.update({end: np.full_like(known[end], value) for end, value in zip(("min", "max"), ends, strict=True)})
    maker = quantizer.Quantizer(keep_biases(content, found))
    maker.load_quantization_recipe(recipe)
    return bytes(maker.quantize(found).quantized_model)


def _before(content: bytes, kept: Sequence[str]) -> list[str]:
    """The model's input, and what only pads or reshapes it, where kept operators alone take it in: float for them."""
    operators = list(float_ops.tflite_operators(content))

    def alone(graph: Any, place: int) -> list[str] | None:
        found = [graph.tensors[place].name.decode()]
        takers = [(op, kind) for _, of, op, kind in operators if of is graph and place in op.inputs]
        for op, kind in takers:
            if graph.tensors[op.outputs[0]].name.decode() in kept:
                continue
            behind = alone(graph, op.outputs[0]) if kind in float_ops.TFLITE_MOVING else None
            if behind is None:
                return None
            found += behind
        return found if takers else None

    graphs = {id(graph): graph for _, graph, _, _ in operators}.values()
    return [name for graph in graphs for place in graph.inputs for name in alone(graph, place) or []]


def _constants(content: bytes) -> dict[str, np.ndarray]:
    """Weights of each operator by its output tensor's name, (output channels, weights of one channel)."""
    found = {}
    for model, graph, op, kind in float_ops.tflite_operators(content):
        data = None
        if kind in OUTPUT_AXIS:
            weights = graph.tensors[op.inputs[1]]
            data = model.buffers[weights.buffer].data
        if data is not None:
            array = np.moveaxis(data.view(np.float32).reshape(weights.shape), OUTPUT_AXIS[kind], 0)
            found[graph.tensors[op.outputs[0]].name.decode()] = array.reshape(len(array), -1)
    return found


def write_step(step: NetworkStep, out: Path) -> list[Path]:
    """`model.tflite`, its inputs and outputs named as the step names them; pictures enter as NHWC."""
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
    """By the signature, which numbers what `forward` takes and gives."""
    [signature] = model.signatureDefs
    graph = model.subgraphs[signature.subgraphIndex]
    named: dict[int, str] = {}
    for ends, names in ((signature.inputs, step.inputs), (signature.outputs, step.outputs)):
        for end in ends:
            place = end.tensorIndex
            name = names[int(end.name.decode().rpartition("_")[2])]
            if place in named:
                raise ConversionError(
                    f"tflite: {named[place]} and {name} are one tensor; compute them apart, such as by x * 1.0"
                )
            named[place] = name
            graph.tensors[place].name = name.encode()
    if len(named) != len(step.inputs) + len(step.outputs):
        raise ConversionError(f"tflite: the file has {len(named)} ends; the step has others: does it use every state?")
