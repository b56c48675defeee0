"""OpenVINO IR: converted from PyTorch; int8 by NNCF on the converted graph, or from the QAT network itself.

Images enter as NCHW. Layers with generated names are renamed, for their counters differ from process to process.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from edgekit.errors import ConversionError
from edgekit.runner.manifest import TensorSpec
from edgekit.targets.files import MINMAX, Files, Quantization, input_layout

PRECISIONS = ("fp32", "fp16", "int8")
FILES = ("model.xml", "model.bin")
WEIGHTED = ("Convolution", "GroupConvolution", "ConvolutionBackpropData", "GroupConvolutionBackpropData", "MatMul")


def convert(
    model_folder: Path,
    precision: str,
    calibration: np.ndarray | None,
    out: Path,
    nncf_folder: Path | None = None,
    quantization: Quantization = MINMAX,
) -> Files:
    """Write `model.xml` and `model.bin` into `out`; `calibration` is (n, C, H, W) or (n, F) float32.

    With `nncf_folder` the int8 model carries the ranges that QAT learnt, and `calibration` is not used.
    """
    import openvino

    qat = precision == "int8" and nncf_folder is not None
    model, input_shape = _from_torch(model_folder, nncf_folder if qat else None)
    if precision == "int8" and not qat:
        model = _quantize(model, calibration)
    _name(model)
    out.mkdir(parents=True, exist_ok=True)
    openvino.save_model(model, str(out / FILES[0]), compress_to_fp16=precision == "fp16")
    source, result = (_spec(port) for port in (model.inputs[0], model.outputs[0]))
    source = TensorSpec(source.name, source.shape, source.dtype, input_layout(input_shape, "NCHW"))
    return Files(FILES, source, result, _float_ops(out / FILES[0]) if precision == "int8" else ())


def _from_torch(model_folder: Path, nncf_folder: Path | None) -> tuple[Any, tuple[int, ...]]:
    import openvino
    import torch

    from edgekit.models import store

    if nncf_folder is None:
        module, spec = store.load(model_folder)
        module = _fold_dense_norms(module)
    else:
        from edgekit.models import quantized

        module, spec = quantized.rebuild(model_folder, nncf_folder), store.read_spec(model_folder)
    shape = [1, *spec.input_shape]
    return openvino.convert_model(module, example_input=torch.zeros(shape), input=shape), spec.input_shape


def _fold_dense_norms(module: Any) -> Any:
    """Batch norms folded into the dense layers before them, where torch can trace the network.

    Left apart, OpenVINO 2026.4's CPU plug-in on one thread gives an int8 dense layer with a batch norm behind it
    outputs without meaning (-164 dB on a two-layer network; 43 dB folded).
    """
    import torch
    from torch.fx.experimental.optimization import fuse

    if not any(isinstance(part, torch.nn.BatchNorm1d) for part in module.modules()):
        return module
    try:
        return fuse(module)
    except Exception:  # the tracer raises whatever the network's own code raises; unfolded, the boundary check decides
        return module


def _quantize(model: Any, calibration: np.ndarray | None) -> Any:
    """Ranges from the samples' extremes, biases as they are.

    nncf's defaults average the extremes and correct biases; on digits they cost the reference networks 6 to 13 dB
    (ResNet-8: top-1 agreement 0.81 against 0.92). Its overflow fix stays: older x86 processors need it.
    """
    import nncf
    from nncf.quantization.range_estimator import RangeEstimatorParametersSet

    if calibration is None:
        raise ConversionError("openvino int8: no calibration samples")
    samples = nncf.Dataset(list(calibration), lambda x: x[None])
    # the preset of the quantize stage's simulation; nncf's own default makes every activation symmetric
    preset = nncf.QuantizationPreset.MIXED
    advanced = nncf.AdvancedQuantizationParameters(
        disable_bias_correction=True, activations_range_estimator_params=RangeEstimatorParametersSet.MINMAX
    )
    return nncf.quantize(model, samples, preset=preset, subset_size=len(calibration), advanced_parameters=advanced)


def _name(model: Any) -> None:
    """Names that depend on the network alone: `__module.…` come from it, all others are given by position."""
    for position, op in enumerate(model.get_ordered_ops()):
        if not op.get_friendly_name().startswith("__module"):
            op.set_friendly_name(f"{op.get_type_name()}_{position}")
    for port, name in ((model.inputs[0], "input"), (model.outputs[0], "output")):
        port.get_node().set_friendly_name(name)
        port.get_tensor().set_names({name})


def _spec(port: Any) -> TensorSpec:
    dtype = np.dtype(port.get_element_type().to_dtype()).name
    return TensorSpec(port.get_any_name(), tuple(port.get_shape()), dtype, "NC")


def _float_ops(path: Path) -> tuple[str, ...]:
    """Weighted ops without a quantized operand; ConversionError if that is all of them."""
    import openvino

    graph = openvino.Core().read_model(str(path))
    ops = [op for op in graph.get_ordered_ops() if op.get_type_name() in WEIGHTED]
    in_float = [op.get_friendly_name() for op in ops if not all(_is_quantized(op, place) for place in (0, 1))]
    if ops and len(in_float) == len(ops):
        raise ConversionError(f"openvino int8: none of its {len(ops)} weighted ops computes in integers")
    return tuple(in_float)


def _is_quantized(op: Any, place: int) -> bool:
    """Whether an operand comes out of a FakeQuantize, or out of int8 constants through their scale."""
    node = op.input_value(place).get_node()
    for _ in range(8):  # through reshapes, pooling and the like, which keep the scale
        kind = node.get_type_name()
        if kind == "FakeQuantize":
            return True
        if kind == "Constant":
            return str(node.get_element_type()) in ("<Type: 'int8_t'>", "<Type: 'uint8_t'>")
        if kind in WEIGHTED or not node.get_input_size():
            return False
        node = node.input_value(0).get_node()
    return False
