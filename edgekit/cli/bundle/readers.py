"""Read the specs of a model file: its inputs and outputs. Open dimensions whose size is known are set in the file.

The file is a copy in the working folder, so it is changed in place. `jobs.inspect` documents the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

import numpy as np

from edgekit.core import file_type
from edgekit.core.errors import ModelError
from edgekit.runner import operators
from edgekit.runner.errors import BundleError

ORIGINAL_MODEL = "given.onnx"
"""File name of a classic model, such as a decision tree, in its original form.

It is kept beside the changed model, whose label output has been removed.
"""
TARGETS = {".tflite": "tflite", ".onnx": "onnx", ".xml": "openvino"}
Size = Optional[Sequence[int]]


def read_specs(path: Path, name: str, size: Size, two_classes: bool) -> dict[str, Any]:
    """Read the specs of a model by its suffix; see `jobs.inspect` for the result."""
    if path.suffix == ".onnx":
        return _read_onnx(path, name, size, two_classes)
    return _read_tflite(path, name) if path.suffix == ".tflite" else _read_openvino(path, size)


UNDAMAGED_ADVICE = (
    "the file can be read to its end, so it is not damaged: export it again with operators that its interpreter has, "
    "or report it with the file"
)


def type_hint(path: Path, library_error: str = "") -> str:
    """Return the probable fault of a file, given the message of the library that could not open it."""
    target, data = TARGETS[path.suffix], path.read_bytes()
    if not file_type.is_model(target, data):
        return file_type.explain_mismatch(target, data)
    if target == "openvino" and "weights" in library_error.lower():
        return "its .bin is cut short, or belongs to another model; copy both files again"
    try:
        operators.read(target, {path.name: data})
    except BundleError:
        return file_type.explain_mismatch(target, data)
    # LiteRT checks more of the file than `operators.read` does
    return file_type.DAMAGED if "flatbuffer" in library_error.lower() else UNDAMAGED_ADVICE


def _read_tflite(path: Path, name: str) -> dict[str, Any]:
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_content=path.read_bytes(), num_threads=1)
    for each in interpreter.get_input_details():
        shape = _tensor_facts(each)["shape"]
        if -1 in shape[1:]:
            raise ModelError(
                f"{name}: its input {each['name']} takes {['?' if side < 0 else side for side in shape]}: a TFLite "
                "file keeps the sides that it was converted with; convert it again from a model with a fixed input, in "
                "Keras keras.Input((HEIGHT, WIDTH, CHANNELS))".replace("'", "")
            )
    interpreter.allocate_tensors()
    titles, results = _tensor_titles(interpreter, "input"), _tensor_titles(interpreter, "output")
    return {
        "inputs": [{**_tensor_facts(each), "title": titles[each["name"]]} for each in interpreter.get_input_details()],
        "outputs": [
            {**_tensor_facts(each), "title": results[each["name"]]} for each in interpreter.get_output_details()
        ],
        "changes": [],
        "integers": any(np.dtype(each["dtype"]).itemsize == 1 for each in interpreter.get_tensor_details()),
    }


def _tensor_titles(interpreter: Any, role: str) -> dict[str, str]:
    """Return the names of the inputs or outputs, from the file's signature or, without one, from the tensors."""
    names = [tensor["name"] for tensor in getattr(interpreter, f"get_{role}_details")()]
    titles = {name: name for name in names}
    for key in interpreter.get_signature_list() if len(names) > 1 else ():
        signature = getattr(interpreter.get_signature_runner(key), f"get_{role}_details")()
        signature_titles = {tensor["name"]: name for name, tensor in signature.items()}
        titles = signature_titles if sorted(signature_titles) == sorted(names) else titles
    shortened = {name: titles[name].removeprefix("serving_default_").removesuffix(":0") for name in names}
    return shortened if len(set(shortened.values())) == len(names) else titles


def _tensor_facts(detail: Any) -> dict[str, Any]:
    """Describe a tensor. An open batch counts as 1, as in the interpreter; any other open dimension stays open."""
    shape = [int(side) for side in detail["shape"]]
    signature = [int(side) for side in detail.get("shape_signature", shape)]
    if len(signature) == len(shape):
        shape[1:] = [
            -1 if declared_side < 0 else side for side, declared_side in zip(shape[1:], signature[1:], strict=True)
        ]
    scales = detail["quantization_parameters"]["scales"]
    return {
        "name": detail["name"],
        "shape": shape,
        "dtype": np.dtype(detail["dtype"]).name,
        "scale": float(scales[0]) if len(scales) == 1 else 0.0,
        "zero_point": int(detail["quantization_parameters"]["zero_points"][0]) if len(scales) == 1 else 0,
    }


def _read_onnx(path: Path, name: str, size: Size, two_classes: bool = False) -> dict[str, Any]:
    import onnx

    from edgekit.models.files import onnx_batch, onnx_classic

    try:
        classic = onnx_classic.read(path.read_bytes(), two_classes)
    except ModelError as error:
        raise ModelError(f"{name}: {error}") from None
    model = onnx.load_model_from_string(classic.content)
    if not model.graph.output:
        raise ModelError(f"{name}: not an ONNX model, because it has no graph; {type_hint(path)}")
    if onnx_batch.has_external_weights(model):
        raise ModelError(
            f"{name}: keeps its weights in other files; make one file of it: "
            f"python -c \"import onnx; onnx.save(onnx.load('{name}'), 'one-file.onnx')\""
        )
    if scores := onnx_batch.argmax_input(model):
        cut_points = [[each["name"] for each in onnx_batch.describe_ports(model)["inputs"]], [scores]]
        raise ModelError(
            f"{name}: ends in an argmax, which gives a class but no scores; remove it: python -c "
            f"\"import onnx.utils; onnx.utils.extract_model('{name}', 'scores.onnx', {cut_points[0]}, "
            f'{cut_points[1]})"'
        )
    changes = [*classic.changes, *onnx_batch.set_batch_to_one(model)]
    changes += onnx_batch.set_image_size(model, (size[0], size[1])) if size else []
    if classic.changes:
        path.with_name(ORIGINAL_MODEL).write_bytes(path.read_bytes())
    if changes:
        path.write_bytes(model.SerializeToString())
    return {
        **onnx_batch.describe_ports(model),
        "changes": changes,
        "integers": onnx_batch.is_quantized(model),
        "classes": list(classic.classes),
        "regressor": classic.is_regressor,
        "instead": onnx_classic.several_outputs_advice(model),
    }


def _read_openvino(path: Path, size: Size) -> dict[str, Any]:
    import openvino

    from edgekit.models.files.onnx_batch import image_axes
    from edgekit.models.files.openvino import is_graph_quantized

    model = openvino.Core().read_model(path.read_bytes(), path.with_suffix(".bin").read_bytes())
    changes = []
    shapes = [tensor.get_partial_shape() for tensor in model.inputs]
    for shape in shapes:
        if shape.rank.is_static and shape.rank.get_length() > 1 and shape[0].is_dynamic:
            shape[0] = openvino.Dimension(1)
            changes = ["its open batch was set to 1"]
    if size and len(shapes) == 1:
        sides = _sides(shapes[0])
        axes = image_axes(sides)
        if any(sides[axis] < 0 for axis in axes):
            for axis, side in zip(axes, size):
                shapes[0][axis] = openvino.Dimension(side) if sides[axis] < 0 else shapes[0][axis]
            changes.append(f"its open height and width were set to {size[0]}×{size[1]}")
    if changes:
        model.reshape(dict(zip(model.inputs, shapes)))
    if unnamed := [tensor for tensor in model.inputs if len(shapes) > 1 and not tensor.get_names()]:
        for port in unnamed:  # several inputs are found by name
            port.get_tensor().set_names({port.get_node().get_friendly_name()})
        changes.append("its inputs were given the names of their nodes")
    changes += _name_outputs(model)
    if changes:
        openvino.save_model(model, path, compress_to_fp16=False)
    return {
        "inputs": [_port_facts(tensor) for tensor in model.inputs],
        "outputs": [_port_facts(tensor) for tensor in model.outputs],
        "changes": changes,
        "integers": is_graph_quantized(model),
    }


def _name_outputs(model: Any) -> list[str]:
    """Number the outputs without names if there are several. Return the change in words."""
    ports = model.outputs if len(model.outputs) > 1 else []
    unnamed = [port for port in ports if not port.get_names()]
    for number, port in enumerate(unnamed):
        port.get_tensor().set_names({f"output_{number}"})
    return ["its outputs without names were numbered"] if unnamed else []


def _port_facts(port: Any) -> dict[str, Any]:
    partial = port.get_partial_shape()
    shape = _sides(partial)
    names = sorted(port.get_names())
    dtype = np.dtype(port.get_element_type().to_dtype()).name
    return {"name": names[0] if names else port.get_node().get_friendly_name(), "shape": shape, "dtype": dtype}


def _sides(partial: Any) -> list[int]:
    return [side.get_length() if side.is_static else -1 for side in partial] if partial.rank.is_static else [-1]
