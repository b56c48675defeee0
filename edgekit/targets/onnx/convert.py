"""ONNX: torch's exporter for float, ONNX Runtime's own tools for all else: QDQ for int8, and its float16 converter.

Images enter as NCHW. The specs state a batch of 1, and where it can, an export takes any (`free_batch`); a model file
that came so keeps what it had. After fp16 both ends stay float32; where a processor has no float16 kernels, ONNX
Runtime computes in float32 from the halved weights. Int8's activations are uint8: with int8 ones ONNX Runtime has no
fast kernels on x86 (a 20-layer ResNet on digits: 901 µs against 328). What ships is shortened (`slim_names`): its inner
tensors and operators have numbers for names.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.core.errors import ConversionError
from edgekit.models.files import onnx_batch
from edgekit.runner.bundle.manifest import TensorSpec
from edgekit.targets import error_causes, float_ops, fold_preprocess, jobs, layers, model_file
from edgekit.targets.jobs import MINMAX, ConvertedFiles, Quantization, input_layout, output_layout
from edgekit.targets.onnx import graph as operator_graph
from edgekit.targets.onnx import inputs, rewrites, slim_names
from edgekit.targets.ranges import OUTSIDE

if TYPE_CHECKING:
    from edgekit.targets.step import NetworkStep

PRECISIONS = ("fp32", "fp16", "int8", "dynamic", "int4_dense")
CALIBRATED = ("int8", "int4_dense")
FILE = "model.onnx"
NO_VIEW = "Cannot view a tensor with shape"


def convert(
    model_folder: Path,
    precision: str,
    calibration: np.ndarray | None,
    out: Path,
    nncf_folder: Path | None = None,
    quantization: Quantization = MINMAX,
    fold: bool = False,
) -> ConvertedFiles:
    """Write `model.onnx`, weights inside, into `out`; `calibration` is (n, C, H, W) or (n, F) float32.

    `nncf_folder` is not needed: after QAT the tuned float weights in `model_folder` are quantized like any others.
    With `fold` the file takes a sample's bytes, where its steps are affine.
    """
    source_file = model_file.read(model_folder)
    content = _float_model(model_folder) if source_file is None else source_file.convert("onnx")
    ports, results = _ends(content)
    results = results if source_file is None else source_file.needed.in_task_order(results)
    sources = jobs.inputs_in_order(ports, model_file.tensor_names(model_folder))
    if len(sources) == 1:
        [source] = sources
        if source_file is None:
            layout = input_layout(source.shape[1:], "NCHW")
        else:
            layout = source_file.layout(source.shape)
            calibration = None if calibration is None else source_file.arrange(calibration, source.shape)
        sources = (TensorSpec(source.name, source.shape, source.dtype, layout),)
    still_float: tuple[str, ...] = ()
    if source_file is not None and source_file.is_quantized:
        still_float = float_ops.onnx(content, finished=True)
    elif precision in CALIBRATED:
        if calibration is None:
            raise ConversionError(f"onnx {precision}: no calibration samples")
        kept = layers.read_layers(model_folder, quantization.keep_float)
        content = rewrites.rename_global_pools(_quantize(content, precision, sources, calibration, quantization, kept))
        still_float = float_ops.onnx(content, finished=precision != "int8")
        if precision == "int4_dense":
            content = rewrites.store_in_4_bits(content)
    elif precision == "fp16":
        content = _halve(content)
    elif precision == "dynamic":
        content = _quantize_dynamically(content)
    fixed = content
    debris = layers.rows_or_none(
        "onnx: redundant operators", lambda: operator_graph.read(fixed)
    )  # it counts one sample
    if source_file is None:
        content = inputs.free_batch(fixed, _float_model(model_folder))
    is_free = content != fixed
    if precision in CALIBRATED and not (source_file is not None and source_file.is_quantized):
        content = rewrites.keep_float_answers(rewrites.widen_stem(content))
    folding = ""
    if fold:
        found = fold_preprocess.model_affine(model_folder)
        content, sources, folding = inputs.take_raw_bytes(content, found, sources)
    out.mkdir(parents=True, exist_ok=True)
    (out / FILE).write_bytes(slim_names.shorten(content))  # last: the lists above name layers
    not_offered = ("bias_correction",) if precision == "int8" and quantization.bias_correction else ()
    return ConvertedFiles((FILE,), sources, results, still_float, not_offered, debris, is_free, folding)


@lru_cache(maxsize=2)  # all precisions of one model share it
def _float_model(model_folder: Path) -> bytes:
    import torch
    from torch._subclasses import FakeTensorMode
    from torch.nn.attention import SDPBackend, sdpa_kernel

    from edgekit.models import store
    from edgekit.models.reparameterize import deployment_network

    saved, spec = store.load(model_folder)
    module, sample = deployment_network(saved, spec), store.zero_sample(spec)
    try:
        model = _exported(module, sample)
    except torch.onnx.errors.OnnxExporterError as error:
        if NO_VIEW not in str(error_causes.root_cause(error)):
            raise
        # torch's fused attention gives other strides than its parts do, and the view behind it fails: Swin's windows
        FakeTensorMode.cache_clear()  # or it would remember them
        with sdpa_kernel(SDPBackend.MATH):
            model = _exported(module, sample)
    strip(model)
    return bytes(model.SerializeToString(deterministic=True))


def _exported(module: Any, sample: Any) -> Any:
    import torch

    from edgekit.models.several_inputs import export_inputs
    from edgekit.targets.torch_graph import plain_attention

    network, arguments, names = export_inputs(module, sample)
    with warnings.catch_warnings(), plain_attention():
        warnings.simplefilter("ignore")
        program: Any = torch.onnx.export(
            network,
            arguments,
            dynamo=True,
            input_names=list(names if len(names) == 1 else inputs.input_placeholders(names)),
            output_names=_output_names(module, sample),
            verbose=False,
        )
    model = program.model_proto  # made anew each time
    if len(names) > 1:
        inputs.give_input_names(model, names)
    return model


def _output_names(module: Any, sample: Any) -> list[str]:
    import torch

    with torch.inference_mode():
        outputs = module(sample)
    return ["output"] if isinstance(outputs, torch.Tensor) else [f"output_{place}" for place in range(len(outputs))]


def _ends(content: bytes) -> list[tuple[TensorSpec, ...]]:
    """The model's inputs, and its outputs."""
    import onnx

    found = onnx_batch.describe_ports(onnx.load_model_from_string(content))
    return [
        tuple(
            TensorSpec(each["name"], tuple(each["shape"]), each["dtype"], output_layout(each["shape"]))
            for each in found[side]
        )
        for side in ("inputs", "outputs")
    ]


def strip(model: Any) -> None:
    """Remove the exporter's notes: they hold stack traces with this machine's paths."""
    for part in (model, model.graph, *model.functions, *model.graph.initializer, *model.graph.input,
                 *model.graph.output, *model.graph.value_info, *model.graph.node):  # fmt: skip
        part.ClearField("doc_string")
        part.ClearField("metadata_props")


def _halve(content: bytes) -> bytes:
    import onnx
    from onnxruntime.transformers.float16 import convert_float_to_float16
    from onnxruntime.transformers.onnx_model import OnnxModel

    halved = OnnxModel(convert_float_to_float16(onnx.load_from_string(content), keep_io_types=True))
    halved.topological_sort(is_deterministic=True)  # it appends the casts of the input behind what uses them
    return bytes(halved.model.SerializeToString(deterministic=True))


def _quantize_dynamically(content: bytes) -> bytes:
    """Weights int8 per channel; activations uint8 by the range of each call."""
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    model = onnx.load_from_string(content)
    model.graph.ClearField("value_info")  # shapes of weights, which it transposes, and then calls a contradiction
    with tempfile.TemporaryDirectory() as folder:
        plain, made = (Path(folder) / name for name in ("plain.onnx", "made.onnx"))
        plain.write_bytes(model.SerializeToString())
        quantize_dynamic(plain, made, per_channel=True, weight_type=QuantType.QInt8)
        return made.read_bytes()


def _quantize(
    content: bytes,
    precision: str,
    sources: Sequence[TensorSpec],
    calibration: np.ndarray,
    quantization: Quantization,
    kept: Sequence[layers.WeightedLayer],
) -> bytes:
    """Weights int8 per channel, activations uint8 per tensor, from the samples' own ranges.

    For percentile ranges ONNX Runtime takes the share that lies outside at both ends together. It approximates them by
    a histogram of 2,048 bins over the whole range.
    """
    import onnx
    from onnxruntime.quantization import (
        CalibrationDataReader,
        CalibrationMethod,
        QuantFormat,
        QuantType,
        quantize_static,
    )
    from onnxruntime.quantization.shape_inference import quant_pre_process

    percentile = {"CalibTensorRangeSymmetric": False, "CalibPercentile": 100 * (1 - 2 * OUTSIDE)}
    by_percentile = quantization.ranges == "percentile"

    class Samples(CalibrationDataReader):
        def __init__(self) -> None:
            self.left = zip(*jobs.input_parts(calibration, sources), strict=True)

        def get_next(self) -> dict[str, np.ndarray] | None:
            tensors = next(self.left, None)
            if tensors is None:
                return None
            return {each.name: tensor[None] for each, tensor in zip(sources, tensors, strict=True)}

    with tempfile.TemporaryDirectory() as folder:
        plain, prepared, made = (Path(folder) / name for name in ("plain.onnx", "prepared.onnx", "made.onnx"))
        plain.write_bytes(content)
        # symbolic shapes are for dynamic axes; every axis here is fixed
        quant_pre_process(plain, prepared, skip_symbolic_shape=True)
        model = onnx.load(prepared)
        rewrites.unshare_biases(model)
        rewrites.make_masks_finite(model, iter(Samples().get_next, None))
        onnx.save(model, prepared)
        in_float = layers.matching_operators(kept, _constants(model), "onnx")
        if precision == "int4_dense":
            in_float = sorted({*in_float, *rewrites.dense_layer_names(model)})
        quantize_static(
            prepared,
            made,
            Samples(),
            nodes_to_exclude=in_float,
            calibrate_method=CalibrationMethod.Percentile if by_percentile else CalibrationMethod.MinMax,
            extra_options=percentile if by_percentile else {},
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
        )
        return made.read_bytes()


def _constants(model: Any) -> dict[str, np.ndarray]:
    """Weights of each operator by its name, (output channels, weights of one channel)."""
    from onnx import numpy_helper

    weights = {one.name: one for one in model.graph.initializer}
    found = {}
    for node in model.graph.node:
        if node.op_type in float_ops.ONNX_WEIGHTED and node.input[1] in weights:
            array = numpy_helper.to_array(weights[node.input[1]])
            transposed = any(attribute.name == "transB" and attribute.i for attribute in node.attribute)
            if node.op_type != "Conv" and not transposed:
                array = array.swapaxes(0, 1)  # input channels first
            found[node.name] = array.reshape(len(array), -1)
    return found


def write_step(step: NetworkStep, out: Path) -> list[Path]:
    """`model.onnx`, its inputs and outputs named as the step names them."""
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program: Any = torch.onnx.export(
            step.network,
            step.example,
            dynamo=True,
            input_names=step.inputs,
            output_names=step.outputs,
            verbose=False,
        )
    model = program.model_proto
    strip(model)
    (out / FILE).write_bytes(slim_names.shorten(model.SerializeToString(deterministic=True)))
    return [out / FILE]
