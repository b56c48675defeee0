"""Jobs of the child process: read the specs of a model, and record its outputs.

The working folder holds the model's files as MODEL.tflite, MODEL.onnx, or MODEL.xml with MODEL.bin.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Optional

import numpy as np

from edgekit.cli.bundle.worker import ANSWER, JOB
from edgekit.core import file_type
from edgekit.core.errors import ConfigError, EdgekitError, ModelError
from edgekit.core.subprocesses import leave_with_parent
from edgekit.models.files.integer_range import Grid, fault
from edgekit.runner import input_vector
from edgekit.runner.bundle.manifest import Manifest, RawSpec
from edgekit.runner.encode import passes_through
from edgekit.runner.errors import InputError, RunnerError
from edgekit.runner.preprocess import steps
from edgekit.runner.preprocess.transform import apply

Size = Optional[Sequence[int]]
MODEL = "model"
TARGETS = {".tflite": "tflite", ".onnx": "onnx", ".xml": "openvino"}
DRAFT = "draft.edge.zip"
SAMPLES, OUTPUTS = "samples.npy", "outputs.npy"


def main(folder: str) -> None:
    """Run the job in the folder and write the answer there."""
    leave_with_parent()
    home = Path(folder)
    what = json.loads((home / JOB).read_text(encoding="utf-8"))
    try:
        answer = _JOBS[what.pop("job")](home, **what)
    except (EdgekitError, RunnerError) as error:
        answer = {"error": str(error), "kind": type(error).__name__}
    (home / ANSWER).write_text(json.dumps(answer), encoding="utf-8")


def inspect(home: Path, name: str, size: Size = None, two_classes: bool = False) -> dict[str, Any]:
    """{"inputs", "outputs": [{name, shape, dtype, …}], "changes": [in words], "integers": is it quantized}.

    `size` is the height and width of the pictures that reach the model, where that is open in the file. Of a classic
    model as ONNX there are "classes" and "regressor" too; with `two_classes` its one probability becomes two scores.
    """
    (path,) = (path for path in home.iterdir() if path.stem == MODEL and path.suffix in _READERS)
    try:
        if path.suffix == ".onnx":
            return _onnx(path, name, size, two_classes)
        return _READERS[path.suffix](path, name, size)
    except (EdgekitError, RunnerError):
        raise
    except Exception as error:  # the libraries' errors share no base class
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise ModelError(f"{name}: cannot be opened: {reason}; {_type_hint(path)}") from None


def _type_hint(path: Path) -> str:
    return file_type.explain_mismatch(TARGETS[path.suffix], path.read_bytes())


def record(home: Path, paths: Sequence[str], most: int, grids: Sequence[dict[str, Any] | None] = ()) -> dict[str, Any]:
    """Leave the samples in `paths` (n, *raw), and the outputs (n, *output) that the draft bundle's interpreter gives.

    Of a table whose rows are samples, as many rows as are worth trying where `most` are kept, spread over all. Of a
    model with states, the first `most` samples of all files, as one stream.

    ConfigError where one of the model's inputs, integers on its grid, cannot hold what preprocess makes of the samples.
    """
    from edgekit.runner import bundle as bundles
    from edgekit.runner import postprocess
    from edgekit.runner.model import open_model

    model = open_model(bundles.read(home / DRAFT))
    found: list[np.ndarray] = []
    samples: list[np.ndarray] = []
    states = model.states()
    for path in paths:
        try:
            if states is not None and len(samples) == most:
                break
            left = None if states is None else most - len(samples)
            for sample in _samples(path, model.manifest.raw, most, model.bundle.members, left):
                _check_dtype(sample, model.manifest.raw)
                output = model.execute(model.prepare(sample), states)
                postprocess.check_finite(output)
                found.append(output)
                samples.append(sample)
        except RunnerError as error:
            message = str(error)
            raise type(error)(message if message.startswith(path) else f"{path}: {message}") from None
    for place, grid in enumerate(grids):
        if grid is not None:
            _check_input_range(Grid(**grid), np.stack(samples), model.manifest, place)
    np.save(home / SAMPLES, np.stack(samples))
    np.save(home / OUTPUTS, np.stack(found))
    return {"interpreter": model.backend.name, "version": model.backend.version}


def _samples(
    path: str, raw: RawSpec, most: int, members: Mapping[str, bytes], left: int | None = None
) -> list[np.ndarray]:
    """The first sample of a file, or rows of a table; with `left`, its first samples, so many at most."""
    from edgekit.runner import input_path, inputs
    from edgekit.stages.bundle import golden

    if left is not None:
        return [sample.raw for sample in islice(inputs.samples(path, raw, members=members), left)]
    if not (path.lower().endswith(".csv") and input_path.find(raw.steps, "rows")):
        return [inputs.read(path, raw, members=members)]
    rows = [sample.raw for sample in inputs.samples(path, raw)]
    return [rows[position] for position in golden.candidates(len(rows), most)]


def _check_dtype(sample: np.ndarray, raw: RawSpec) -> None:
    """InputError for an array of the right shape and another dtype, with the option that takes it."""
    if sample.dtype == raw.dtype or sample.shape != raw.shape:
        return
    dtype = "float32" if sample.dtype.kind == "f" else sample.dtype.name
    message = (
        f"sample: got {sample.dtype}{list(sample.shape)}; the bundle takes {raw.dtype}{list(raw.shape)} ({raw.kind})"
    )
    known = [each for each in steps.RAW_DTYPES if (each == "int32") == (raw.kind == "text")]
    if dtype not in known:
        raise InputError(f"{message}; save it as {raw.dtype}, or as another of {', '.join(known)}")
    saved = "" if sample.dtype == dtype else f" once it is saved as {dtype}"
    raise InputError(f"{message}; --dtype {dtype} fits{saved}")


def _check_input_range(grid: Grid, samples: np.ndarray, manifest: Manifest, place: int) -> None:
    if tensors := manifest.raw.tensors:
        part = input_vector.split(samples, [each["shape"] for each in tensors])[place]
        holds = "" if tensors[place]["dtype"] != "float32" else fault(grid, part, "float32", (), "the samples hold")
        if holds:
            raise ConfigError(f"--golden: tensor {tensors[place]['name']}: the model {holds}")
        return
    if passes_through(manifest.preprocess, manifest.raw.dtype, manifest.input.dtype):
        return
    problem = fault(grid, apply(manifest.preprocess, samples), manifest.raw.dtype, manifest.preprocess)
    if problem:
        own = "" if manifest.raw.dtype != "float32" else f"; for the model's own integers give --dtype {grid.dtype}"
        raise ConfigError(f"--preprocess: the model {problem}{own}")


def _tflite(path: Path, name: str, size: Size) -> dict[str, Any]:
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
    titles = _titles(interpreter)
    return {
        "inputs": [{**_detail(each), "title": titles[each["name"]]} for each in interpreter.get_input_details()],
        "outputs": [_detail(each) for each in interpreter.get_output_details()],
        "changes": [],
        "integers": any(np.dtype(each["dtype"]).itemsize == 1 for each in interpreter.get_tensor_details()),
    }


def _titles(interpreter: Any) -> dict[str, str]:
    """What a sample's file calls the inputs: as the file's signature does, else after their tensors."""
    names = [each["name"] for each in interpreter.get_input_details()]
    for key in interpreter.get_signature_list() if len(names) > 1 else ():
        signed = interpreter.get_signature_runner(key).get_input_details()
        known = {each["name"]: name for name, each in signed.items()}
        if sorted(known) == sorted(names):
            return {name: _plain(known[name]) for name in names}
    return {name: _plain(name) for name in names}


def _plain(name: str) -> str:
    return name.removeprefix("serving_default_").removesuffix(":0")


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

    classic = onnx_classic.read(path.read_bytes(), two_classes)
    model = onnx.load_model_from_string(classic.content)
    if not model.graph.output:
        raise ModelError(f"{name}: no ONNX model: it has no graph; {_type_hint(path)}")
    if onnx_batch.external(model):
        raise ModelError(
            f"{name}: keeps its weights in other files; make one file of it: "
            f"python -c \"import onnx; onnx.save(onnx.load('{name}'), 'one-file.onnx')\""
        )
    if scores := onnx_batch.before_argmax(model):
        ends = [[each["name"] for each in onnx_batch.ports(model)["inputs"]], [scores]]
        raise ModelError(
            f"{name}: ends in an argmax, which gives a class and no scores; cut that off: python -c "
            f"\"import onnx.utils; onnx.utils.extract_model('{name}', 'scores.onnx', {ends[0]}, {ends[1]})\""
        )
    changes = [*classic.changes, *onnx_batch.set_batch_to_one(model)]
    changes += onnx_batch.close(model, (size[0], size[1])) if size else []
    if changes:
        path.write_bytes(model.SerializeToString())
    return {
        **onnx_batch.ports(model),
        "changes": changes,
        "integers": onnx_batch.is_quantized(model),
        "classes": list(classic.classes),
        "regressor": classic.is_regressor,
        "instead": onnx_classic.instead(model),
    }


def _openvino(path: Path, name: str, size: Size) -> dict[str, Any]:
    import openvino

    from edgekit.models.files.onnx_batch import spatial
    from edgekit.models.files.openvino import is_quantized

    model = openvino.Core().read_model(path.read_bytes(), path.with_suffix(".bin").read_bytes())
    changes = []
    shapes = [each.get_partial_shape() for each in model.inputs] if len(model.outputs) == 1 else []
    for shape in shapes:
        if shape.rank.is_static and shape.rank.get_length() > 1 and shape[0].is_dynamic:
            shape[0] = openvino.Dimension(1)
            changes = ["its open batch was set to 1"]
    if size and len(shapes) == 1:
        sides = _sides(shapes[0])
        places = spatial(sides)
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
    if changes:
        openvino.save_model(model, path, compress_to_fp16=False)
    return {
        "inputs": [_port(each) for each in model.inputs],
        "outputs": [_port(each) for each in model.outputs],
        "changes": changes,
        "integers": is_quantized(model),
    }


def _port(port: Any) -> dict[str, Any]:
    partial = port.get_partial_shape()
    shape = _sides(partial)
    names = sorted(port.get_names())
    dtype = np.dtype(port.get_element_type().to_dtype()).name
    return {"name": names[0] if names else port.get_node().get_friendly_name(), "shape": shape, "dtype": dtype}


def _sides(partial: Any) -> list[int]:
    return [side.get_length() if side.is_static else -1 for side in partial] if partial.rank.is_static else [-1]


_READERS = {".tflite": _tflite, ".onnx": _onnx, ".xml": _openvino}
_JOBS: dict[str, Any] = {"inspect": inspect, "record": record}

if __name__ == "__main__":
    main(sys.argv[1])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # an exit would wait for the thread that watches standard input
