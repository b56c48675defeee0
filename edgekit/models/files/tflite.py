"""TFLite files, run by LiteRT. Integer inputs and outputs use their own scale and zero point, as on a device."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.models.files import flatbuffer
from edgekit.models.files.interface import (
    DeviceModel,
    FileInput,
    OpenedModel,
    QuantizationGrid,
    Run,
    Tensors,
    cast_input,
    check_inputs_and_outputs,
    joined_input_shape,
)
from edgekit.models.files.openvino import batch_of_one
from edgekit.models.files.task_outputs import ANY_OUTPUT, TaskOutputs
from edgekit.runner.backends.tflite import TfliteBackend
from edgekit.runner.box_heads import HeadDecoder
from edgekit.runner.bundle.manifest import TensorSpec

INTERPRETER = "litert"
UNSUPPORTED_TARGETS = {
    "onnx": "no maintained converter turns a TFLite model into ONNX; give the model that it was converted from"
}


def open(path: Path, threads: int, tensors: Tensors = (), needed: TaskOutputs = ANY_OUTPUT) -> OpenedModel:
    """Open the model at `path`; each input shape gets its own interpreter."""
    from ai_edge_litert.interpreter import Interpreter

    data = _read(path, tensors)
    first = Interpreter(model_content=data, num_threads=threads)
    inputs, outputs = first.get_input_details(), first.get_output_details()
    check_inputs_and_outputs([each["name"] for each in inputs], len(outputs), tensors, needed.max_outputs)
    if tensors:
        return _open_several_inputs(data, first, threads, tensors, needed)

    def for_shape(shape: tuple[int, ...]) -> Run:
        interpreter = Interpreter(model_content=data, num_threads=threads)
        interpreter.resize_tensor_input(inputs[0]["index"], shape)
        interpreter.allocate_tensors()
        [source] = interpreter.get_input_details()
        results = needed.in_task_order([_spec(each) for each in interpreter.get_output_details()])
        run = _decoded(TfliteBackend("litert", interpreter, (_spec(source),), results).run, needed, results)
        plain = not len(source["quantization_parameters"]["scales"])
        return (lambda x: run(cast_input(x, source["dtype"]).astype(np.float32))) if plain else run

    return OpenedModel(tuple(_signature(inputs[0])), for_shape, _step(outputs[0]), _grid(inputs[0]))


def _decoded(run: Run, needed: TaskOutputs, results: Sequence[TensorSpec]) -> Run:
    """Return `run` with its outputs converted to those of the task, if the file is a published detector."""
    if not needed.head:
        return run
    decoder = HeadDecoder(needed.head, [each.shape[1:] for each in results])
    return lambda x: decoder(run(x))


def _read(path: Path, tensors: Tensors) -> bytes:
    """Read the file. If its signature has the names of the tensors, its inputs get these names."""
    return flatbuffer.with_signature_names(path.read_bytes(), [each["name"] for each in tensors])


def _open_several_inputs(data: bytes, first: Any, threads: int, tensors: Tensors, needed: TaskOutputs) -> OpenedModel:
    """Open a model of several inputs; each batch size gets its own interpreter."""
    from ai_edge_litert.interpreter import Interpreter

    details = {each["name"]: each for each in first.get_input_details()}
    inputs = [FileInput(name, _signature(each), np.dtype(each["dtype"]).name) for name, each in details.items()]
    specs = [_spec(details[each["name"]]) for each in tensors]
    results = needed.in_task_order([_spec(each) for each in first.get_output_details()])

    def for_shape(shape: tuple[int, ...]) -> Run:
        interpreter = Interpreter(model_content=data, num_threads=threads)
        size = shape[0]
        return TfliteBackend("litert", interpreter, specs, results, size).run

    grids = tuple(_grid(details[each["name"]]) for each in tensors)
    shape, step = joined_input_shape(inputs, tensors), _step(first.get_output_details()[0])
    return OpenedModel(shape, for_shape, step, grids=grids)


def on_device(path: Path, tensors: Tensors = (), needed: TaskOutputs = ANY_OUTPUT) -> DeviceModel:
    """Return the file as the runner opens it. LiteRT treats an open batch as one."""
    from ai_edge_litert.interpreter import Interpreter

    data = _read(path, tensors)
    first = Interpreter(model_content=data, num_threads=1)
    inputs, outputs = first.get_input_details(), first.get_output_details()
    check_inputs_and_outputs([each["name"] for each in inputs], len(outputs), tensors, needed.max_outputs)
    results = needed.in_task_order([_spec(each) for each in outputs])
    return DeviceModel({path.name: data}, [_spec(each) for each in inputs], results)


def _signature(detail: Any) -> list[int]:
    """Return the shape with -1 for open dimensions. Only `shape_signature` marks them; in `shape`, they are 1."""
    shape, signature = ([int(side) for side in detail[key]] for key in ("shape", "shape_signature"))
    return signature if len(signature) == len(shape) else shape


def _spec(detail: Any) -> TensorSpec:
    return TensorSpec(
        detail["name"], tuple(int(side) for side in detail["shape"]), np.dtype(detail["dtype"]).name, "ANY"
    )


def _step(detail: Any) -> float:
    scales = detail["quantization_parameters"]["scales"]
    return float(scales[0]) if len(scales) == 1 and np.dtype(detail["dtype"]).kind in "iu" else 0.0


def _grid(detail: Any) -> QuantizationGrid | None:
    scale, dtype = _step(detail), np.dtype(detail["dtype"])
    points = detail["quantization_parameters"]["zero_points"]
    return QuantizationGrid(dtype.name, scale, int(points[0])) if scale and dtype.itemsize == 1 else None


def is_quantized(path: Path) -> bool:
    """Return whether any tensor, weight or not, holds 8-bit integers with a scale."""
    from ai_edge_litert.interpreter import Interpreter

    details = Interpreter(model_content=path.read_bytes(), num_threads=1).get_tensor_details()
    return any(
        np.dtype(each["dtype"]).itemsize == 1 and len(each["quantization_parameters"]["scales"]) for each in details
    )


def tflite(
    path: Path, precision: str, samples: Mapping[str, np.ndarray] | None, sample_shape: tuple[int, ...]
) -> bytes:
    """Return the file itself, with the names and the signature that the quantizer needs."""
    return flatbuffer.with_names_and_signature(path.read_bytes())


def openvino(path: Path, names: Sequence[str] = ()) -> Any:
    """Return an `openvino.Model` for a batch of one. Its inputs get the `names` if the file's signature has them.

    OpenVINO reads TFLite only from a path, and needs a name for every tensor.
    """
    import openvino as ov

    with tempfile.TemporaryDirectory() as folder:
        copied = Path(folder) / "model.tflite"
        copied.write_bytes(
            flatbuffer.with_signature_names(flatbuffer.with_names_and_signature(path.read_bytes()), names)
        )
        return batch_of_one(ov.Core().read_model(copied))
