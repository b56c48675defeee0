"""OpenVINO's IR, an .xml with its .bin beside it, on the CPU."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.core.errors import ModelError
from edgekit.models.files.interface import Opened, Run, cast, check_one_input_one_output
from edgekit.runner.bundle.manifest import TensorSpec

INTERPRETER = "openvino"
NOT = {
    "tflite": "an OpenVINO model cannot be converted to TFLite; give the model that it was converted from",
    "onnx": "an OpenVINO model cannot be converted to ONNX; give the model that it was converted from",
}


def open(path: Path, threads: int) -> Opened:
    """The model at `path`, reshaped and compiled for each size. Its arithmetic stays float32 on every CPU."""
    import openvino

    core = openvino.Core()
    files = path.read_bytes(), path.with_suffix(".bin").read_bytes()
    model = core.read_model(*files)
    check_one_input_one_output(len(model.inputs), len(model.outputs))
    dtype = _dtype(model.input(0))
    partial = model.input(0).get_partial_shape()
    if partial.rank.is_dynamic:
        raise ModelError("its input may have any number of sides; convert it with --input and a shape")

    def sized(shape: tuple[int, ...]) -> Run:
        resized = core.read_model(*files)
        resized.reshape({resized.input(0): openvino.PartialShape(list(shape))})
        settings = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"}
        compiled = core.compile_model(resized, "CPU", settings)

        def run(x: np.ndarray) -> np.ndarray:
            y: np.ndarray = compiled(cast(x, dtype))[0]
            return y

        return run

    return Opened(tuple(side.get_length() if side.is_static else -1 for side in partial), sized)


def on_device(path: Path) -> tuple[dict[str, bytes], TensorSpec, TensorSpec]:
    """The files as the runner opens them, their input and output; for a batch of one where it is open."""
    import openvino as library

    files = {path.name: path.read_bytes(), path.with_suffix(".bin").name: path.with_suffix(".bin").read_bytes()}
    model = library.Core().read_model(*files.values())
    check_one_input_one_output(len(model.inputs), len(model.outputs))
    if model.is_dynamic():
        model = batch_of_one(model)
        with tempfile.TemporaryDirectory() as folder:
            library.save_model(model, Path(folder) / "model.xml", compress_to_fp16=False)
            files = {each.name: each.read_bytes() for each in sorted(Path(folder).iterdir())}
    return files, _spec(model.input(0)), _spec(model.output(0))


def _spec(port: Any) -> TensorSpec:
    partial = port.get_partial_shape()
    shape = tuple(side.get_length() if side.is_static else -1 for side in partial) if partial.rank.is_static else ()
    return TensorSpec(port.get_node().get_friendly_name(), shape, _dtype(port), "ANY")


def _dtype(port: Any) -> str:
    return np.dtype(port.get_element_type().to_dtype()).name


def quantized(path: Path) -> bool:
    """Whether it holds 8-bit weights, or quantizes what it computes."""
    import openvino

    model = openvino.Core().read_model(path.read_bytes(), path.with_suffix(".bin").read_bytes())
    return is_quantized(model)


def is_quantized(model: Any) -> bool:
    """The same of an `openvino.Model`."""
    return any(op.get_type_name() == "FakeQuantize" or _is_byte(op) for op in model.get_ops())


def _is_byte(op: Any) -> bool:
    """Whether it is a stored tensor of 8-bit integers."""
    return op.get_type_name() == "Constant" and op.get_element_type().to_string() in ("i8", "u8")


def openvino(path: Path) -> Any:
    """An `openvino.Model` for a batch of one."""
    import openvino as ov

    model = ov.Core().read_model(path.read_bytes(), path.with_suffix(".bin").read_bytes())
    return batch_of_one(model)


def batch_of_one(model: Any) -> Any:
    """The model with its first side set to 1, where that is open."""
    import openvino as ov

    shape = model.input(0).get_partial_shape()
    if shape.rank.is_static and shape.rank.get_length() > 1 and shape[0].is_dynamic:
        shape[0] = ov.Dimension(1)
        model.reshape({model.input(0): shape})
    return model
