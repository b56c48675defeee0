"""Read the specs of a model file: its inputs and outputs, open sides set to what is known of them.

What is changed is written into the file itself. `jobs.inspect` says what is given.
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

GIVEN = "given.onnx"
"""A classic model as it came, kept beside the one whose label was taken off."""
TARGETS = {".tflite": "tflite", ".onnx": "onnx", ".xml": "openvino"}
Size = Optional[Sequence[int]]


def read(path: Path, name: str, size: Size, two_classes: bool) -> dict[str, Any]:
    """What `jobs.inspect` gives, by the file's suffix."""
    if path.suffix == ".onnx":
        return _onnx(path, name, size, two_classes)
    return _tflite(path, name) if path.suffix == ".tflite" else _openvino(path, size)


WHOLE = (
    "the file can be read to its end, so it is not damaged: export it again with operators that its interpreter has, "
    "or report it with the file"
)


def type_hint(path: Path, reason: str = "") -> str:
    """What to think of a file that could not be opened, for the `reason` that its library gave."""
    target, data = TARGETS[path.suffix], path.read_bytes()
    if not file_type.is_model(target, data):
        return file_type.explain_mismatch(target, data)
    if target == "openvino" and "weights" in reason.lower():
        return "its .bin is cut short, or that of another model; copy both files again"
    try:
        operators.read(target, {path.name: data})
    except BundleError:
        return file_type.explain_mismatch(target, data)
    return file_type.DAMAGED if "flatbuffer" in reason.lower() else WHOLE  # LiteRT checks more of it than we read


def _tflite(path: Path, name: str) -> dict[str, Any]:
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_content=path.read_bytes(), num_threads=1)
    for each in interpreter.get_input_details():
        shape = _detail(each)["shape"]
        if -1 in shape[1:]:
            raise ModelError(
                f"{name}: its input {each['name']} takes {['?' if side < 0 else side for side in shape]}: a TFLite "
                "file keeps the sides that it was converted with; convert it again from a model with a fixed input, in "
                "Keras keras.Input((HEIGHT, WIDTH, CHANNELS))".replace("'", "")
            )
    interpreter.allocate_tensors()
    titles, results = _titles(interpreter, "input"), _titles(interpreter, "output")
    return {
        "inputs": [{**_detail(each), "title": titles[each["name"]]} for each in interpreter.get_input_details()],
        "outputs": [{**_detail(each), "title": results[each["name"]]} for each in interpreter.get_output_details()],
        "changes": [],
        "integers": any(np.dtype(each["dtype"]).itemsize == 1 for each in interpreter.get_tensor_details()),
    }


def _titles(interpreter: Any, end: str) -> dict[str, str]:
    """What the inputs or outputs are called: as the file's signature does, else after their tensors."""
    names = [each["name"] for each in getattr(interpreter, f"get_{end}_details")()]
    called = {name: name for name in names}
    for key in interpreter.get_signature_list() if len(names) > 1 else ():
        signed = getattr(interpreter.get_signature_runner(key), f"get_{end}_details")()
        known = {each["name"]: name for name, each in signed.items()}
        called = known if sorted(known) == sorted(names) else called
    short = {name: called[name].removeprefix("serving_default_").removesuffix(":0") for name in names}
    return short if len(set(short.values())) == len(names) else called


def _detail(detail: Any) -> dict[str, Any]:
    """An open batch counts as 1, which is what the interpreter makes of it; another open side stays open."""
    shape = [int(side) for side in detail["shape"]]
    signature = [int(side) for side in detail.get("shape_signature", shape)]
    if len(signature) == len(shape):
        shape[1:] = [-1 if open_ < 0 else side for side, open_ in zip(shape[1:], signature[1:], strict=True)]
    scales = detail["quantization_parameters"]["scales"]
    return {
        "name": detail["name"],
        "shape": shape,
        "dtype": np.dtype(detail["dtype"]).name,
        "scale": float(scales[0]) if len(scales) == 1 else 0.0,
        "zero_point": int(detail["quantization_parameters"]["zero_points"][0]) if len(scales) == 1 else 0,
    }


def _onnx(path: Path, name: str, size: Size, two_classes: bool = False) -> dict[str, Any]:
    import onnx

    from edgekit.models.files import onnx_batch, onnx_classic

    try:
        classic = onnx_classic.read(path.read_bytes(), two_classes)
    except ModelError as error:
        raise ModelError(f"{name}: {error}") from None
    model = onnx.load_model_from_string(classic.content)
    if not model.graph.output:
        raise ModelError(f"{name}: not an ONNX model: it has no graph; {type_hint(path)}")
    if onnx_batch.has_external_weights(model):
        raise ModelError(
            f"{name}: keeps its weights in other files; make one file of it: "
            f"python -c \"import onnx; onnx.save(onnx.load('{name}'), 'one-file.onnx')\""
        )
    if scores := onnx_batch.argmax_input(model):
        ends = [[each["name"] for each in onnx_batch.describe_ports(model)["inputs"]], [scores]]
        raise ModelError(
            f"{name}: ends in an argmax, which gives a class and no scores; cut that off: python -c "
            f"\"import onnx.utils; onnx.utils.extract_model('{name}', 'scores.onnx', {ends[0]}, {ends[1]})\""
        )
    changes = [*classic.changes, *onnx_batch.set_batch_to_one(model)]
    changes += onnx_batch.set_image_size(model, (size[0], size[1])) if size else []
    if classic.changes:
        path.with_name(GIVEN).write_bytes(path.read_bytes())
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


def _openvino(path: Path, size: Size) -> dict[str, Any]:
    import openvino

    from edgekit.models.files.onnx_batch import image_axes
    from edgekit.models.files.openvino import is_graph_quantized

    model = openvino.Core().read_model(path.read_bytes(), path.with_suffix(".bin").read_bytes())
    changes = []
    shapes = [each.get_partial_shape() for each in model.inputs]
    for shape in shapes:
        if shape.rank.is_static and shape.rank.get_length() > 1 and shape[0].is_dynamic:
            shape[0] = openvino.Dimension(1)
            changes = ["its open batch was set to 1"]
    if size and len(shapes) == 1:
        sides = _sides(shapes[0])
        places = image_axes(sides)
        if any(sides[place] < 0 for place in places):
            for place, side in zip(places, size):
                shapes[0][place] = openvino.Dimension(side) if sides[place] < 0 else shapes[0][place]
            changes.append(f"its open height and width were set to {size[0]}×{size[1]}")
    if changes:
        model.reshape(dict(zip(model.inputs, shapes)))
    if nameless := [each for each in model.inputs if len(shapes) > 1 and not each.get_names()]:
        for port in nameless:  # several are found by their names
            port.get_tensor().set_names({port.get_node().get_friendly_name()})
        changes.append("its inputs were given the names of their nodes")
    changes += _name_outputs(model)
    if changes:
        openvino.save_model(model, path, compress_to_fp16=False)
    return {
        "inputs": [_port(each) for each in model.inputs],
        "outputs": [_port(each) for each in model.outputs],
        "changes": changes,
        "integers": is_graph_quantized(model),
    }


def _name_outputs(model: Any) -> list[str]:
    """Give several outputs without names those of the nodes that make them; what was done, in words."""
    ports = model.outputs if len(model.outputs) > 1 else []
    nameless = [port for port in ports if not port.get_names()]
    for place, port in enumerate(nameless):
        port.get_tensor().set_names({f"output_{place}"})
    return ["its outputs without names were numbered"] if nameless else []


def _port(port: Any) -> dict[str, Any]:
    partial = port.get_partial_shape()
    shape = _sides(partial)
    names = sorted(port.get_names())
    dtype = np.dtype(port.get_element_type().to_dtype()).name
    return {"name": names[0] if names else port.get_node().get_friendly_name(), "shape": shape, "dtype": dtype}


def _sides(partial: Any) -> list[int]:
    return [side.get_length() if side.is_static else -1 for side in partial] if partial.rank.is_static else [-1]
