"""ONNX: torch's exporter for float, ONNX Runtime's static quantization (QDQ) for int8.

Images enter as NCHW, batch 1. Activations are uint8: with int8 ones ONNX Runtime has no fast kernels on x86
(a 20-layer ResNet on digits: 901 µs against 328).
"""

from __future__ import annotations

import tempfile
import warnings
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.errors import ConversionError
from edgekit.runner.manifest import TensorSpec
from edgekit.targets.files import MINMAX, Files, Quantization, input_layout

PRECISIONS = ("fp32", "int8")
FILE = "model.onnx"
WEIGHTED = ("Conv", "ConvTranspose", "Gemm", "MatMul")


def convert(
    model_folder: Path,
    precision: str,
    calibration: np.ndarray | None,
    out: Path,
    nncf_folder: Path | None = None,
    quantization: Quantization = MINMAX,
) -> Files:
    """Write `model.onnx`, weights inside, into `out`; `calibration` is (n, C, H, W) or (n, F) float32.

    `nncf_folder` is not needed: after QAT the tuned float weights in `model_folder` are quantized like any others.
    """
    content, input_shape, classes = _float_model(model_folder)
    float_ops: tuple[str, ...] = ()
    if precision == "int8":
        if calibration is None:
            raise ConversionError("onnx int8: no calibration samples")
        content = _quantize(content, calibration)
        float_ops = _float_ops(content)
    out.mkdir(parents=True, exist_ok=True)
    (out / FILE).write_bytes(content)
    source = TensorSpec("input", (1, *input_shape), "float32", input_layout(input_shape, "NCHW"))
    return Files((FILE,), source, TensorSpec("output", (1, classes), "float32", "NC"), float_ops)


@lru_cache(maxsize=2)  # both precisions of one model share it
def _float_model(model_folder: Path) -> tuple[bytes, tuple[int, ...], int]:
    import torch

    from edgekit.models import store

    module, spec = store.load(model_folder)
    sample = torch.zeros(1, *spec.input_shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program: Any = torch.onnx.export(
            module, (sample,), dynamo=True, input_names=["input"], output_names=["output"], verbose=False
        )
    model = program.model_proto
    _strip(model)
    return model.SerializeToString(deterministic=True), spec.input_shape, spec.num_classes


def _strip(model: Any) -> None:
    """Remove the exporter's notes: they hold stack traces with this machine's paths."""
    for part in (model, model.graph, *model.functions, *model.graph.initializer, *model.graph.input,
                 *model.graph.output, *model.graph.value_info, *model.graph.node):  # fmt: skip
        part.ClearField("doc_string")
        part.ClearField("metadata_props")


def _quantize(content: bytes, calibration: np.ndarray) -> bytes:
    """Weights int8 per channel, activations uint8 per tensor, from the samples' own ranges."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Samples(CalibrationDataReader):
        def __init__(self) -> None:
            self.left = iter(calibration)

        def get_next(self) -> dict[str, np.ndarray] | None:
            x = next(self.left, None)
            return None if x is None else {"input": x[None]}

    with tempfile.TemporaryDirectory() as folder:
        plain, prepared, made = (Path(folder) / name for name in ("plain.onnx", "prepared.onnx", "made.onnx"))
        plain.write_bytes(content)
        # symbolic shapes are for dynamic axes; every axis here is fixed
        quant_pre_process(plain, prepared, skip_symbolic_shape=True)
        quantize_static(
            prepared,
            made,
            Samples(),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
        )
        return made.read_bytes()


def _float_ops(content: bytes) -> tuple[str, ...]:
    """Weighted ops without dequantized operands; ConversionError if that is all of them."""
    import onnx

    nodes = onnx.load_from_string(content).graph.node
    dequantized = {name for node in nodes if node.op_type == "DequantizeLinear" for name in node.output}
    ops = [node for node in nodes if node.op_type in WEIGHTED]
    in_float = [node.name for node in ops if not dequantized.issuperset(node.input[:2])]
    if ops and len(in_float) == len(ops):
        raise ConversionError(f"onnx int8: none of its {len(ops)} weighted ops computes in integers")
    return tuple(in_float)
