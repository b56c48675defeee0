"""Convert to ONNX: PyTorch's exporter makes the float model, and ONNX Runtime's tools make int8 (QDQ) and float16.

Images are NCHW. The specs state a batch of 1, but an exported file accepts any batch if that is possible
(`free_batch`). A model file that the user provides keeps its batch. In fp16 files, inputs and outputs stay float32. On
processors without float16 kernels, ONNX Runtime computes in float32 with the float16 weights. In int8 files,
activations are uint8, because ONNX Runtime has no fast kernels for int8 activations on x86 (a 20-layer ResNet on
digits: 901 µs instead of 328). The names of inner tensors and operators are replaced by short ones (`slim_names`).
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
    """Write `model.onnx` with its weights into `out`; `calibration` is (n, C, H, W) or (n, F), float32.

    `nncf_folder` is not used: after QAT, the tuned float weights in `model_folder` are quantized like any others. With
    `fold`, the file takes the bytes of a raw sample if the preprocess steps are affine.
    """
    source_file = model_file.read(model_folder)
    content = _float_model(model_folder) if source_file is None else source_file.convert("onnx")
    ports, results = _read_ports(content)
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
        float_layers = layers.read_layers(model_folder, quantization.keep_float)
        tail = layers.float_tail(model_folder)
        content = _quantize(content, precision, sources, calibration, quantization, float_layers, tail)
        content = rewrites.rename_global_pools(content)
        still_float = float_ops.onnx(content, finished=precision != "int8")
        if precision == "int4_dense":
            content = rewrites.store_in_4_bits(content)
    elif precision == "fp16":
        content = _halve(content)
    elif precision == "dynamic":
        content = _quantize_dynamically(content)
    fixed_batch = content
    debris = layers.rows_or_none(
        "onnx: redundant operators", lambda: operator_graph.read(fixed_batch)
    )  # counted for one sample
    if source_file is None:
        content = inputs.free_batch(fixed_batch, _float_model(model_folder))
    is_free = content != fixed_batch
    if precision in CALIBRATED and not (source_file is not None and source_file.is_quantized):
        content = rewrites.keep_float_answers(rewrites.widen_stem(content))
    folding = ""
    if fold:
        affine = fold_preprocess.model_affine(model_folder)
        content, sources, folding = inputs.take_raw_bytes(content, affine, sources)
    out.mkdir(parents=True, exist_ok=True)
    (out / FILE).write_bytes(slim_names.shorten(content))  # last, because the lists above contain names of layers
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
        model = _export(module, sample)
    except torch.onnx.errors.OnnxExporterError as error:
        if NO_VIEW not in str(error_causes.root_cause(error)):
            raise
        # fused attention returns other strides than plain attention, so that a view after it fails (Swin's windows)
        FakeTensorMode.cache_clear()  # which would otherwise contain these strides
        with sdpa_kernel(SDPBackend.MATH):
            model = _export(module, sample)
    strip(model)
    return bytes(model.SerializeToString(deterministic=True))


def _export(module: Any, sample: Any) -> Any:
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
    model = program.model_proto  # a new object each time
    if len(names) > 1:
        inputs.give_input_names(model, names)
    return model


def _output_names(module: Any, sample: Any) -> list[str]:
    import torch

    with torch.inference_mode():
        outputs = module(sample)
    return ["output"] if isinstance(outputs, torch.Tensor) else [f"output_{index}" for index in range(len(outputs))]


def _read_ports(content: bytes) -> list[tuple[TensorSpec, ...]]:
    """Return the specs of the model's inputs, and of its outputs."""
    import onnx

    ports = onnx_batch.describe_ports(onnx.load_model_from_string(content))
    return [
        tuple(
            TensorSpec(each["name"], tuple(each["shape"]), each["dtype"], output_layout(each["shape"]))
            for each in ports[side]
        )
        for side in ("inputs", "outputs")
    ]


def strip(model: Any) -> None:
    """Remove the exporter's notes, in place, because they contain stack traces with paths of this machine."""
    for part in (model, model.graph, *model.functions, *model.graph.initializer, *model.graph.input,
                 *model.graph.output, *model.graph.value_info, *model.graph.node):  # fmt: skip
        part.ClearField("doc_string")
        part.ClearField("metadata_props")


def _halve(content: bytes) -> bytes:
    import onnx
    from onnxruntime.transformers.float16 import convert_float_to_float16
    from onnxruntime.transformers.onnx_model import OnnxModel

    halved = OnnxModel(convert_float_to_float16(onnx.load_from_string(content), keep_io_types=True))
    # the converter appends the casts of the input after the operators that use them
    halved.topological_sort(is_deterministic=True)
    return bytes(halved.model.SerializeToString(deterministic=True))


def _quantize_dynamically(content: bytes) -> bytes:
    """Quantize weights to int8 per channel; activations become uint8 by the range of each call."""
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    model = onnx.load_from_string(content)
    # the quantizer transposes weights, and the recorded shapes would then contradict the weights
    model.graph.ClearField("value_info")
    with tempfile.TemporaryDirectory() as folder:
        plain, quantized = (Path(folder) / name for name in ("plain.onnx", "quantized.onnx"))
        plain.write_bytes(model.SerializeToString())
        quantize_dynamic(plain, quantized, per_channel=True, weight_type=QuantType.QInt8)
        return quantized.read_bytes()


def _quantize(
    content: bytes,
    precision: str,
    sources: Sequence[TensorSpec],
    calibration: np.ndarray,
    quantization: Quantization,
    float_layers: Sequence[layers.WeightedLayer],
    tail: Sequence[layers.WeightedLayer],
) -> bytes:
    """Quantize weights to int8 per channel and activations to uint8 per tensor, with ranges from the samples.

    For percentile ranges, ONNX Runtime takes a single number, the percentage of values inside the range. It
    approximates the percentiles by a histogram of 2,048 bins over the whole range.
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
            self.remaining = zip(*jobs.input_parts(calibration, sources), strict=True)

        def get_next(self) -> dict[str, np.ndarray] | None:
            tensors = next(self.remaining, None)
            if tensors is None:
                return None
            return {each.name: tensor[None] for each, tensor in zip(sources, tensors, strict=True)}

    with tempfile.TemporaryDirectory() as folder:
        plain, prepared, quantized = (Path(folder) / f"{name}.onnx" for name in ("plain", "prepared", "quantized"))
        plain.write_bytes(content)
        # symbolic shapes are for dynamic axes, and every axis here is fixed
        quant_pre_process(plain, prepared, skip_symbolic_shape=True)
        model = onnx.load(prepared)
        rewrites.unshare_biases(model)
        rewrites.make_masks_finite(model, iter(Samples().get_next, None))
        onnx.save(model, prepared)
        in_float = layers.matching_operators(float_layers, _constants(model), "onnx")
        if tail:
            begins = layers.matching_operators(tail, _constants(model), "onnx")
            in_float += layers.with_followers(
                begins, ((node.name, node.input, node.output) for node in model.graph.node)
            )
        if precision == "int4_dense":
            in_float = sorted({*in_float, *rewrites.dense_layer_names(model)})
        quantize_static(
            prepared,
            quantized,
            Samples(),
            nodes_to_exclude=in_float,
            calibrate_method=CalibrationMethod.Percentile if by_percentile else CalibrationMethod.MinMax,
            extra_options=percentile if by_percentile else {},
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
        )
        return quantized.read_bytes()


def _constants(model: Any) -> dict[str, np.ndarray]:
    """Return the weights of each operator by its name, (output channels, weights of one channel)."""
    from onnx import numpy_helper

    weights = {one.name: one for one in model.graph.initializer}
    arrays = {}
    for node in model.graph.node:
        if node.op_type in float_ops.ONNX_WEIGHTED and node.input[1] in weights:
            array = numpy_helper.to_array(weights[node.input[1]])
            transposed = any(attribute.name == "transB" and attribute.i for attribute in node.attribute)
            if node.op_type != "Conv" and not transposed:
                array = array.swapaxes(0, 1)  # the file has the input channels first
            arrays[node.name] = array.reshape(len(array), -1)
    return arrays


def write_step(step: NetworkStep, out: Path) -> list[Path]:
    """Write `model.onnx` for a network's step, with the step's names of inputs and outputs; return its path."""
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
