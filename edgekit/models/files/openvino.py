"""OpenVINO's IR, an .xml file with its .bin beside it, run on the CPU."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.core.errors import ModelError
from edgekit.models.files.interface import (
    DeviceModel,
    FileInput,
    OpenedModel,
    Run,
    Tensors,
    check_inputs_and_outputs,
    input_arrays,
    joined_input_shape,
)
from edgekit.models.files.task_outputs import ANY_OUTPUT, TaskOutputs
from edgekit.runner.backends.openvino import compile_model
from edgekit.runner.bundle.manifest import TensorSpec

INTERPRETER = "openvino"
UNSUPPORTED_TARGETS = {
    "tflite": "an OpenVINO model cannot be converted to TFLite; give the model that it was converted from",
    "onnx": "an OpenVINO model cannot be converted to ONNX; give the model that it was converted from",
}


def open(path: Path, threads: int, tensors: Tensors = (), needed: TaskOutputs = ANY_OUTPUT) -> OpenedModel:
    """Open the model at `path`; it is compiled for each input shape, and computes in float32 on every CPU."""
    import openvino

    core = openvino.Core()
    files = path.read_bytes(), path.with_suffix(".bin").read_bytes()
    model = core.read_model(*files)
    if any(port.get_partial_shape().rank.is_dynamic for port in model.inputs):
        raise ModelError("its input may have any number of axes; convert it with --input and a shape")
    names = [each["name"] for each in tensors]
    inputs = [_file_input(port, names) for port in model.inputs]
    check_inputs_and_outputs([each.name for each in inputs], len(model.outputs), tensors, needed.max_outputs)

    def for_shape(shape: tuple[int, ...]) -> Run:
        resized = core.read_model(*files)
        sides = {each["name"]: [shape[0], *each["shape"]] for each in tensors}
        input_shapes = [sides[each.name] for each in inputs] if tensors else [list(shape)]
        shapes = zip(resized.inputs, map(openvino.PartialShape, input_shapes), strict=True)
        resized.reshape(dict(shapes))
        compiled = compile_model(core, resized, threads)

        def run(x: np.ndarray) -> np.ndarray:
            outputs = compiled(list(input_arrays(x, inputs, tensors).values()))
            return needed.join([outputs[index] for index in range(len(model.outputs))])

        return run

    return OpenedModel(joined_input_shape(inputs, tensors), for_shape)


def port_name(port: Any, names: Sequence[str] = ()) -> str:
    """Return the name of a port, if possible one of `names`; empty if it has none."""
    own = port.get_names()
    return next((name for name in names if name in own), min(own, default=""))


def _file_input(port: Any, names: Sequence[str]) -> FileInput:
    sides = [side.get_length() if side.is_static else -1 for side in port.get_partial_shape()]
    return FileInput(port_name(port, names), sides, _dtype(port))


def on_device(path: Path, tensors: Tensors = (), needed: TaskOutputs = ANY_OUTPUT) -> DeviceModel:
    """Return the model as the runner opens it, with an open batch set to one."""
    import openvino as library

    files = {path.name: path.read_bytes(), path.with_suffix(".bin").name: path.with_suffix(".bin").read_bytes()}
    model = library.Core().read_model(*files.values())
    names = [each["name"] for each in tensors]
    check_inputs_and_outputs(
        [port_name(port, names) for port in model.inputs], len(model.outputs), tensors, needed.max_outputs
    )
    if model.is_dynamic():
        model = batch_of_one(model)
        with tempfile.TemporaryDirectory() as folder:
            library.save_model(model, Path(folder) / "model.xml", compress_to_fp16=False)
            files = {each.name: each.read_bytes() for each in sorted(Path(folder).iterdir())}
    results = needed.in_task_order([_spec(port) for port in model.outputs])
    return DeviceModel(files, [_spec(port, names) for port in model.inputs], results)


def _spec(port: Any, names: Sequence[str] = ()) -> TensorSpec:
    partial = port.get_partial_shape()
    shape = tuple(side.get_length() if side.is_static else -1 for side in partial) if partial.rank.is_static else ()
    return TensorSpec(port_name(port, names) or port.get_node().get_friendly_name(), shape, _dtype(port), "ANY")


def _dtype(port: Any) -> str:
    return np.dtype(port.get_element_type().to_dtype()).name


def is_quantized(path: Path) -> bool:
    """Return whether the model has 8-bit weights, or quantizes its intermediate values."""
    import openvino

    model = openvino.Core().read_model(path.read_bytes(), path.with_suffix(".bin").read_bytes())
    return is_graph_quantized(model)


def is_graph_quantized(model: Any) -> bool:
    """Return whether an `openvino.Model` has 8-bit weights, or quantizes its intermediate values."""
    return any(op.get_type_name() == "FakeQuantize" or _is_byte(op) for op in model.get_ops())


def _is_byte(op: Any) -> bool:
    """Return whether an operator is a stored tensor of 8-bit integers."""
    return op.get_type_name() == "Constant" and op.get_element_type().to_string() in ("i8", "u8")


def openvino(path: Path, names: Sequence[str] = ()) -> Any:
    """Return an `openvino.Model` for a batch of one."""
    import openvino as ov

    model = ov.Core().read_model(path.read_bytes(), path.with_suffix(".bin").read_bytes())
    return batch_of_one(model)


def batch_of_one(model: Any) -> Any:
    """Set an open batch of each input to 1, in place, and return the model."""
    import openvino as ov

    shapes = {port: port.get_partial_shape() for port in model.inputs}
    free = [shape for shape in shapes.values() if shape.rank.is_static and shape.rank.get_length() > 1]
    for shape in free:
        if shape[0].is_dynamic:
            shape[0] = ov.Dimension(1)
    if any(shape != port.get_partial_shape() for port, shape in shapes.items()):
        model.reshape(shapes)
    return model
