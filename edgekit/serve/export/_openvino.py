"""Runs the golden samples on OpenVINO as OpenVINO Model Server would: the model file alone, on its own input tensors.

OpenVINO runs in a child process, because it may crash on a file.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.core import subprocesses
from edgekit.core.errors import ConversionError, EdgekitError
from edgekit.runner import bundle as bundles
from edgekit.runner import telemetry
from edgekit.runner.backends import installed_interpreters
from edgekit.runner.backends.openvino import compile_model
from edgekit.runner.model import Model, open_model
from edgekit.serve.export._subjects import ExportedBundle

FILES = {"tflite": ("model.tflite",), "onnx": ("model.onnx",), "openvino": ("model.xml", "model.bin")}
SETTINGS = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
"""The settings with which OpenVINO runs the golden samples. The server's configuration gets the same ones, because some
CPUs would otherwise compute in bfloat16."""
LIMIT_S = 600.0
ADVICE = "export its openvino or onnx bundle, or serve this one with `edgekit serve`"


def files(subject: ExportedBundle) -> dict[str, bytes]:
    """Return the model files under the names that OpenVINO and its server expect."""
    return {name: subject.model_file(Path(name).suffix) for name in FILES[subject.manifest.target]}


def check(subject: ExportedBundle) -> None:
    """Check that OpenVINO gives the golden answers of a bundle.

    Raises ConversionError if OpenVINO cannot read the file or gives a wrong answer; the message names the first wrong
    answer and its error. Raises BackendError if OpenVINO is not installed.
    """
    installed_interpreters("openvino")  # raises the error that says what to install
    reply = _run_openvino(subject)
    if "error" in reply:
        raise ConversionError(f"{subject.path}: OpenVINO cannot run this file: {reply['error']}; {ADVICE}")
    atol = subject.manifest.golden["atol"]
    wrong = [each for each in reply["vectors"] if not _is_right(each, atol, subject.manifest.golden["top1"])]
    if not wrong:
        return
    worst = max(each["delta"] for each in wrong)
    raise ConversionError(
        f"{subject.path}: OpenVINO {reply['version']} answers {len(wrong)} of {len(reply['vectors'])} golden samples "
        f"wrongly: sample {wrong[0]['vector']} is off by {wrong[0]['delta']:.4g}, but {atol:.4g} is "
        f"allowed; the largest difference is {worst:.4g}; {ADVICE}"
    )


def _is_right(vector: dict[str, Any], atol: float, top1: bool) -> bool:
    """Return whether an answer is within the tolerance. NaN is wrong, because it is not below any bound."""
    return bool(vector["delta"] <= atol) and (not top1 or bool(vector["same_label"]))


def _run_openvino(subject: ExportedBundle) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="edgekit-export-") as home:
        folder = Path(home)
        for name, data in files(subject).items():
            (folder / name).write_bytes(data)
        (folder / "subject.edge.zip").write_bytes(subject.data)
        try:
            reply: dict[str, Any] = subprocesses.call(f"{__name__}:answer_golden", {"home": home}, folder, LIMIT_S)
            return reply
        except EdgekitError as error:
            return {"error": str(error)}
        except subprocesses.ChildDied as died:
            timeout_message = f"no answer within {LIMIT_S:.0f} s"
            return {"error": timeout_message if died.ended.timed_out else died.ended.describe("its process")}


def answer_golden(home: str) -> dict[str, Any]:
    """Run all golden samples, in the child process, and return the error of each, or OpenVINO's error message."""
    telemetry.disable()
    import openvino

    folder = Path(home)
    bundle = bundles.read(folder / "subject.edge.zip")
    model = open_model(bundle)
    inputs, expected = model.golden()
    try:
        core = openvino.Core()
        model_file = core.read_model(folder / FILES[bundle.manifest.target][0])
        compiled = compile_model(core, model_file, threads=1)
        request, decode = compiled.create_infer_request(), model.backend.decode
        vectors = []
        for number, (raw, recorded) in enumerate(zip(inputs, expected)):
            request.infer(_inputs(model, raw))
            native = np.array(request.get_output_tensor(0).data)
            outputs = (native if decode is None else decode(native)).reshape(recorded.shape).astype(np.float64)
            same_label = bool((outputs.argmax(axis=-1) == recorded.argmax(axis=-1)).all())
            vectors.append(
                {"vector": number, "delta": float(np.abs(outputs - recorded).max()), "same_label": same_label}
            )
    except (RuntimeError, ValueError, TypeError) as error:
        return {"error": " ".join(str(error).split())[:300]}
    return {"version": openvino.__version__.partition("-")[0], "vectors": vectors}


def _inputs(model: Model, raw: np.ndarray) -> Any:
    """Return the model's input tensors for a raw sample, as a list of one or as a dict by name if there are several."""
    x, specs = model.prepare(raw), model.manifest.inputs
    if len(specs) == 1:
        return [x]
    return {spec.name: each for spec, each in zip(specs, model.backend.tensors(x))}
