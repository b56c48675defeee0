"""TFLite: litert-torch makes the float model, ai-edge-quantizer casts its weights or makes it int8.

Images enter as NHWC. The int8 model takes and gives int8, with the scales in its own tensors.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.errors import ConversionError
from edgekit.runner.manifest import TensorSpec
from edgekit.targets.dead_channels import keep_biases
from edgekit.targets.files import MINMAX, Files, Quantization, input_layout

PRECISIONS = ("fp32", "fp16", "int8")
FILE = "model.tflite"
CASTABLE = ("FULLY_CONNECTED", "CONV_2D", "DEPTHWISE_CONV_2D", "CONV_2D_TRANSPOSE")
# the file format's names, and where data and weights stand among an op's inputs
WEIGHTED = {
    "FULLY_CONNECTED": (0, 1),
    "CONV_2D": (0, 1),
    "DEPTHWISE_CONV_2D": (0, 1),
    "BATCH_MATMUL": (0, 1),
    "TRANSPOSE_CONV": (2, 1),
}


def convert(
    model_folder: Path,
    precision: str,
    calibration: np.ndarray | None,
    out: Path,
    nncf_folder: Path | None = None,
    quantization: Quantization = MINMAX,
) -> Files:
    """Write `model.tflite` into `out`; `calibration` is (n, C, H, W) or (n, F) float32.

    `nncf_folder` is not needed: after QAT the tuned float weights in `model_folder` are quantized like any others.
    """
    content, input_shape = _float_model(model_folder)
    if precision == "fp16":
        content = _cast_weights(content)
    elif precision == "int8":
        if calibration is None:
            raise ConversionError("tflite int8: no calibration samples")
        content = _quantize(content, calibration)
    out.mkdir(parents=True, exist_ok=True)
    (out / FILE).write_bytes(content)
    source, result = _tensors(content, input_layout(input_shape, "NHWC"))
    return Files((FILE,), source, result, _float_ops(content) if precision == "int8" else ())


@lru_cache(maxsize=2)  # the three precisions of one model share it
def _float_model(model_folder: Path) -> tuple[bytes, tuple[int, ...]]:
    import litert_torch
    import torch

    from edgekit.models import store

    module, spec = store.load(model_folder)
    sample = torch.zeros(1, *spec.input_shape)
    if len(spec.input_shape) == 3:
        module = litert_torch.to_channel_last_io(module, args=[0]).eval()
        sample = sample.permute(0, 2, 3, 1).contiguous()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / FILE
        litert_torch.convert(module, (sample,)).export(str(path))
        return path.read_bytes(), spec.input_shape


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


def _quantize(content: bytes, calibration: np.ndarray) -> bytes:
    """Static int8: weights per channel, activations per tensor, over the whole range that the samples show.

    The quantizer's own default is a moving average over samples, which clips all but the last ones and depends on
    their order: 10 to 11 dB against 27 to 33 dB for the reference networks on digits.
    """
    from ai_edge_litert.interpreter import Interpreter
    from ai_edge_quantizer import calibrator, quantizer, recipe, recipe_manager
    from ai_edge_quantizer.utils import qsv_utils

    [(signature, tensors)] = Interpreter(model_content=content).get_signature_list().items()
    [argument] = tensors["inputs"]
    inputs = calibration.transpose(0, 2, 3, 1) if calibration.ndim == 4 else calibration
    samples = [{argument: np.ascontiguousarray(x[None])} for x in inputs]
    wanted = recipe_manager.RecipeManager()
    wanted.load_quantization_recipe(recipe.static_wi8_ai8())
    ranges = calibrator.Calibrator(content, num_threads=1, qsv_update_func=qsv_utils.min_max_update)
    ranges.calibrate({signature: samples}, wanted)
    found = ranges.get_model_qsvs()
    maker = quantizer.Quantizer(keep_biases(content, found))
    maker.load_quantization_recipe(recipe.static_wi8_ai8())
    return bytes(maker.quantize(found).quantized_model)


def _tensors(content: bytes, layout: str) -> tuple[TensorSpec, TensorSpec]:
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_content=content)
    [source], [result] = interpreter.get_input_details(), interpreter.get_output_details()

    def spec(detail: Any, layout: str) -> TensorSpec:
        shape = tuple(int(side) for side in detail["shape"])
        return TensorSpec(detail["name"], shape, np.dtype(detail["dtype"]).name, layout)

    return spec(source, layout), spec(result, "NC")


def _float_ops(content: bytes) -> tuple[str, ...]:
    """Weighted ops with a float activation or weight; ConversionError if not one of them is an integer op."""
    ops = list(_weighted_ops(content))
    in_float = [name for name, integer in ops if not integer]
    if ops and len(in_float) == len(ops):
        raise ConversionError(f"tflite int8: none of its {len(ops)} weighted ops computes in integers")
    return tuple(in_float)


def _weighted_ops(content: bytes) -> Iterator[tuple[str, bool]]:
    """(`OP:output tensor`, whether it computes in integers) for each."""
    from ai_edge_litert import schema_py_generated as schema

    names = {value: name for name, value in vars(schema.BuiltinOperator).items() if not name.startswith("_")}
    model = schema.ModelT.InitFromPackedBuf(content, 0)
    for graph in model.subgraphs:
        for op in graph.operators:
            code = model.operatorCodes[op.opcodeIndex]
            name = names[max(code.builtinCode, code.deprecatedBuiltinCode)]
            if name in WEIGHTED:
                output = graph.tensors[op.outputs[0]]
                tensors = [output, *(graph.tensors[op.inputs[place]] for place in WEIGHTED[name])]
                yield f"{name}:{output.name.decode()}", all(one.type == schema.TensorType.INT8 for one in tensors)
