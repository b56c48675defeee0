"""What is done to a model in a process of its own: reading its specs, and recording its answers.

The working folder holds the model's files as MODEL.tflite, MODEL.onnx, or MODEL.xml with MODEL.bin.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.child import leave_with_parent
from edgekit.errors import EdgekitError, ModelError
from edgekit.ready_made.child import ANSWER, JOB
from edgekit.runner.errors import RunnerError

MODEL = "model"
DRAFT = "draft.edge.zip"
OUTPUTS = "outputs.npy"


def main(folder: str) -> None:
    """Do the job that lies in the folder, and leave the answer there."""
    leave_with_parent()
    home = Path(folder)
    what = json.loads((home / JOB).read_text(encoding="utf-8"))
    try:
        answer = _JOBS[what.pop("job")](home, **what)
    except (EdgekitError, RunnerError) as error:
        answer = {"error": str(error), "kind": type(error).__name__}
    (home / ANSWER).write_text(json.dumps(answer), encoding="utf-8")


def inspect(home: Path, name: str) -> dict[str, Any]:
    """{"inputs", "outputs": [{name, shape, dtype, scale}], "changes": [in words], "integers": is it quantized}."""
    (path,) = (path for path in home.iterdir() if path.stem == MODEL and path.suffix in _READERS)
    try:
        return _READERS[path.suffix](path, name)
    except (EdgekitError, RunnerError):
        raise
    except Exception as error:  # the libraries' errors share no base class
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise ModelError(f"{name}: cannot be opened: {reason}") from None


def record(home: Path, paths: Sequence[str]) -> dict[str, Any]:
    """Leave the outputs (n, *output) for the samples in `paths`, as the draft bundle's usual interpreter gives them."""
    from edgekit.runner import bundle as bundles
    from edgekit.runner import inputs, postprocess
    from edgekit.runner.model import open_model

    model = open_model(bundles.read(home / DRAFT))
    found = []
    for path in paths:
        try:
            output = model.execute(model.prepare(inputs.read(path, model.manifest.raw)))
            postprocess.check_finite(output)
        except RunnerError as error:
            told = str(error)
            raise type(error)(told if told.startswith(path) else f"{path}: {told}") from None
        found.append(output)
    np.save(home / OUTPUTS, np.stack(found))
    return {"interpreter": model.backend.name, "version": model.backend.version}


def _tflite(path: Path, name: str) -> dict[str, Any]:
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_content=path.read_bytes(), num_threads=1)
    interpreter.allocate_tensors()
    return {
        "inputs": [_detail(each) for each in interpreter.get_input_details()],
        "outputs": [_detail(each) for each in interpreter.get_output_details()],
        "changes": [],
        "integers": any(np.dtype(each["dtype"]).itemsize == 1 for each in interpreter.get_tensor_details()),
    }


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
    }


def _onnx(path: Path, name: str) -> dict[str, Any]:
    import onnx

    from edgekit.sources import onnx_batch

    model = onnx.load_model_from_string(path.read_bytes())
    if not model.graph.output:
        raise ModelError(f"{name}: no ONNX model: it has no graph")
    if onnx_batch.external(model):
        raise ModelError(
            f"{name}: keeps its weights in other files; make one file of it: "
            f"python -c \"import onnx; onnx.save(onnx.load('{name}'), 'one-file.onnx')\""
        )
    changes = onnx_batch.fix(model)
    if changes:
        path.write_bytes(model.SerializeToString())
    return {**onnx_batch.ports(model), "changes": changes, "integers": onnx_batch.is_quantized(model)}


def _openvino(path: Path, name: str) -> dict[str, Any]:
    import openvino

    from edgekit.sources.openvino import is_quantized

    model = openvino.Core().read_model(path.read_bytes(), path.with_suffix(".bin").read_bytes())
    changes = []
    if len(model.inputs) == 1:
        shape = model.input(0).get_partial_shape()
        if shape.rank.is_static and shape.rank.get_length() > 1 and shape[0].is_dynamic:
            shape[0] = openvino.Dimension(1)
            model.reshape({model.input(0): shape})
            openvino.save_model(model, path, compress_to_fp16=False)
            changes.append("its open batch was set to 1")
    return {
        "inputs": [_port(each) for each in model.inputs],
        "outputs": [_port(each) for each in model.outputs],
        "changes": changes,
        "integers": is_quantized(model),
    }


def _port(port: Any) -> dict[str, Any]:
    partial = port.get_partial_shape()
    shape = [side.get_length() if side.is_static else -1 for side in partial] if partial.rank.is_static else [-1]
    names = sorted(port.get_names())
    dtype = np.dtype(port.get_element_type().to_dtype()).name
    return {"name": names[0] if names else port.get_node().get_friendly_name(), "shape": shape, "dtype": dtype}


_READERS = {".tflite": _tflite, ".onnx": _onnx, ".xml": _openvino}
_JOBS: dict[str, Any] = {"inspect": inspect, "record": record}

if __name__ == "__main__":
    main(sys.argv[1])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # an exit would wait for the thread that watches standard input
