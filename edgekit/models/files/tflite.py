"""TFLite files by LiteRT. Integer inputs and outputs go by their own scale and zero point, as on a device."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.models.files import flatbuffer
from edgekit.models.files.integer_range import Grid
from edgekit.models.files.interface import Opened, Run, cast, check_one_input_one_output
from edgekit.models.files.openvino import batch_of_one
from edgekit.runner.backends import litert
from edgekit.runner.backends._tflite import TfliteBackend
from edgekit.runner.bundle.manifest import TensorSpec

INTERPRETER = "litert"
NOT = {"onnx": "no maintained converter turns a TFLite model into ONNX; give the model that it was converted from"}


def open(path: Path, threads: int) -> Opened:
    """The model at `path`; each size gets an interpreter of its own."""
    from ai_edge_litert.interpreter import Interpreter

    data = path.read_bytes()
    first = Interpreter(model_content=data, num_threads=threads)
    inputs, outputs = first.get_input_details(), first.get_output_details()
    check_one_input_one_output(len(inputs), len(outputs))

    def sized(shape: tuple[int, ...]) -> Run:
        interpreter = Interpreter(model_content=data, num_threads=threads)
        interpreter.resize_tensor_input(inputs[0]["index"], shape)
        interpreter.allocate_tensors()
        source, result = interpreter.get_input_details()[0], interpreter.get_output_details()[0]
        run = TfliteBackend("litert", litert.DISTRIBUTION, interpreter, _spec(source), (_spec(result),)).run
        plain = not len(source["quantization_parameters"]["scales"])
        return (lambda x: run(cast(x, source["dtype"]).astype(np.float32))) if plain else run

    return Opened(tuple(_signature(inputs[0])), sized, _step(outputs[0]), _grid(inputs[0]))


def on_device(path: Path) -> tuple[dict[str, bytes], TensorSpec, TensorSpec]:
    """The file as the runner opens it, its input and its output; an open batch is one there by itself."""
    from ai_edge_litert.interpreter import Interpreter

    data = path.read_bytes()
    first = Interpreter(model_content=data, num_threads=1)
    inputs, outputs = first.get_input_details(), first.get_output_details()
    check_one_input_one_output(len(inputs), len(outputs))
    return {path.name: data}, _spec(inputs[0]), _spec(outputs[0])


def _signature(detail: Any) -> list[int]:
    """`shape` has 1 for every open side; `shape_signature` tells them, where the file has one."""
    shape, signature = ([int(side) for side in detail[key]] for key in ("shape", "shape_signature"))
    return signature if len(signature) == len(shape) else shape


def _spec(detail: Any) -> TensorSpec:
    return TensorSpec(
        detail["name"], tuple(int(side) for side in detail["shape"]), np.dtype(detail["dtype"]).name, "ANY"
    )


def _step(detail: Any) -> float:
    scales = detail["quantization_parameters"]["scales"]
    return float(scales[0]) if len(scales) == 1 and np.dtype(detail["dtype"]).kind in "iu" else 0.0


def _grid(detail: Any) -> Grid | None:
    scale, dtype = _step(detail), np.dtype(detail["dtype"])
    points = detail["quantization_parameters"]["zero_points"]
    return Grid(dtype.name, scale, int(points[0])) if scale and dtype.itemsize == 1 else None


def quantized(path: Path) -> bool:
    """Whether a tensor holds 8-bit integers with a scale, weights or others, whatever the file takes and gives."""
    from ai_edge_litert.interpreter import Interpreter

    details = Interpreter(model_content=path.read_bytes(), num_threads=1).get_tensor_details()
    return any(
        np.dtype(each["dtype"]).itemsize == 1 and len(each["quantization_parameters"]["scales"]) for each in details
    )


def tflite(path: Path, precision: str, samples: Sequence[np.ndarray] | None, sample_shape: tuple[int, ...]) -> bytes:
    """The file itself, with the names and the signature that a quantizer asks for."""
    return flatbuffer.completed(path.read_bytes())


def openvino(path: Path) -> Any:
    """An `openvino.Model` for a batch of one; OpenVINO reads TFLite from a path alone, and wants every tensor named."""
    import openvino as ov

    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder) / "model.tflite"
        whole.write_bytes(flatbuffer.completed(path.read_bytes()))
        return batch_of_one(ov.Core().read_model(whole))
