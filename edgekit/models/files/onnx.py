"""ONNX files, by ONNX Runtime on the CPU; onnx2tf makes TFLite of them."""

from __future__ import annotations

import contextlib
import io
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.core.errors import ModelError
from edgekit.models.files import compatibility, interface, onnx_batch, onnx_classic
from edgekit.models.files.detect import ONNX_WEIGHTS, members
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
from edgekit.models.files.openvino import batch_of_one
from edgekit.models.files.task_outputs import ANY_OUTPUT, TaskOutputs
from edgekit.runner.backends import onnxruntime as runner
from edgekit.runner.backends.onnxruntime import DTYPES, QUIET
from edgekit.runner.bundle.manifest import TensorSpec

INTERPRETER = "onnxruntime"
NOT: dict[str, str] = {}
SHOWN_LINES = 3
EXAMPLES = "calibration_image_sample_data_20x128x128x3_float32.npy"
"""Pictures that onnx2tf would download, unless a file of this name lies in the folder it runs in."""
LEGACY = "TF_USE_LEGACY_KERAS"
"""onnx2tf sets it as it is imported, and then no process started from this one could read a Keras 3 file."""
CONVERSION_TOLERANCE = 1e-2
"""By which share of their range TFLite's answers may differ from ONNX Runtime's: more is no rounding."""
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
ONE_FILE = "python -c \"import onnx; onnx.save(onnx.load('MODEL.onnx'), 'one-file.onnx')\""


def open(path: Path, threads: int, tensors: Tensors = (), needed: TaskOutputs = ANY_OUTPUT) -> OpenedModel:
    """The model at `path`, from memory, with the weights that PyTorch puts beside it; other files are not read."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = QUIET
    content, others = _scores_alone(path), members(path, "onnx")[1:]
    _check_weights(path, _parsed(content), others)  # ONNX Runtime would look for them in the current folder
    for beside in others:
        weights = beside.read_bytes()
        options.add_external_initializers_from_files_in_memory([beside.name], [weights], [len(weights)])
    session = runner.session(content, options)
    inputs = [_taken(each) for each in session.get_inputs()]
    check_inputs_and_outputs([each.name for each in inputs], len(session.get_outputs()), tensors, needed.most)
    for each in inputs:
        if each.dtype not in DTYPES.values():
            raise ModelError(f"its input is {each.dtype}; a model file may take {', '.join(DTYPES.values())}")

    def run(x: np.ndarray) -> np.ndarray:
        return needed.join(session.run(None, input_arrays(x, inputs, tensors)))

    def sized(shape: tuple[int, ...]) -> Run:
        return run  # it refuses what it cannot take when it is called

    return OpenedModel(joined_input_shape(inputs, tensors), sized)


def _taken(port: Any) -> FileInput:
    sides = [side if isinstance(side, int) else -1 for side in port.shape]
    return FileInput(port.name, sides, DTYPES.get(port.type, port.type))


def on_device(path: Path, tensors: Tensors = (), needed: TaskOutputs = ANY_OUTPUT) -> DeviceModel:
    """The file as the runner opens it; made one piece, and its open batch one."""
    content = _scores_alone(path)
    model = _parsed(content)
    sides = [side for ports in onnx_batch.describe_ports(model).values() for port in ports for side in port["shape"]]
    if onnx_batch.has_external_weights(model) or min(sides, default=0) < 0:
        content = onnx(path)
        model = _parsed(content)
    ends = onnx_batch.describe_ports(model)
    check_inputs_and_outputs([each["name"] for each in ends["inputs"]], len(ends["outputs"]), tensors, needed.most)
    sources, results = (
        [TensorSpec(port["name"], tuple(port["shape"]), port["dtype"], "ANY") for port in ends[side]]
        for side in ("inputs", "outputs")
    )
    return DeviceModel({path.name: content}, sources, needed.ordered(results))


def refusal(path: Path, target: str) -> str:
    """Why nothing can be made of this file for a target, by its operators; empty where something can."""
    return "" if target == "onnx" else _classic(path).refusal


def float_only(path: Path) -> str:
    """Why it is offered in float alone; empty where its weights can be quantized."""
    operators = _classic(path).operators
    return f"no quantizer knows {', '.join(operators)}: it stays as it is" if operators else ""


def is_quantized(path: Path) -> bool:
    """Whether some of its arithmetic is on 8-bit integers."""
    return onnx_batch.is_quantized(_parsed(path.read_bytes()))


def _classic(path: Path) -> onnx_classic.ClassicModel:
    return onnx_classic.read(path.read_bytes())


def _scores_alone(path: Path) -> bytes:
    """The file, without the label and the ZipMap that converters of classic models put beside its scores."""
    return _classic(path).content


def _parsed(content: bytes) -> Any:
    import onnx as library

    return library.load_model_from_string(content)


def _check_weights(path: Path, model: Any, beside: Sequence[Path]) -> None:
    """ModelError for weights that are not there, or not where they may be."""
    external_files, usual = onnx_batch.external_files(model), path.name + ONNX_WEIGHTS
    if external_files - {usual}:
        raise ModelError(f"keeps its weights in other files than {usual}; make one file of it: {ONE_FILE}")
    if external_files and not beside:
        raise ModelError(f"its weights are missing; put {usual} beside it")


def onnx(path: Path) -> bytes:
    """The model in one piece, its open batch set to one; ModelError where its weights lie elsewhere."""
    import onnx as library

    model, beside = _parsed(_scores_alone(path)), members(path, "onnx")[1:]
    _check_weights(path, model, beside)
    if beside:
        library.load_external_data_for_model(model, str(path.parent))
    onnx_batch.set_batch_to_one(model)
    return bytes(model.SerializeToString(deterministic=True))


def openvino(path: Path, names: Sequence[str] = ()) -> Any:
    """An `openvino.Model` for a batch of one."""
    import openvino as ov

    return batch_of_one(ov.Core().read_model(onnx(path)))


def tflite(
    path: Path, precision: str, samples: Mapping[str, np.ndarray] | None, sample_shape: tuple[int, ...]
) -> bytes:
    """By onnx2tf in float, for a batch of one; images stand channels last, whatever they do in the file.

    First of the file as it is, then of the file with its constants folded: the first that answers as ONNX Runtime does.

    `sample_shape` stands channels last: by default onnx2tf takes every image for one that stands
    channels first, and windows too.

    ModelError where onnx2tf cannot be installed. It downloads pictures to try its work on, unless it finds some.
    """
    compatibility.ensure_onnx2tf()
    before = os.environ.get(LEGACY)
    try:
        import onnx2tf
    finally:
        os.environ.pop(LEGACY, None)
        os.environ |= {LEGACY: before} if before is not None else {}
    content = onnx(path)
    made: list[bytes] = []
    failed: list[Exception] = []
    for road in (lambda: content, lambda: _folded(content)):
        try:
            found = _by_onnx2tf(onnx2tf, road(), sample_shape)
            if _agrees(content, found):
                return found
            made.append(found)
        except Exception as error:  # it raises whatever the layers that it makes raise
            failed.append(error)
    if made:
        return made[0]  # the check of the conversion says where it differs
    raise failed[0]


def _by_onnx2tf(onnx2tf: Any, content: bytes, sample_shape: tuple[int, ...]) -> bytes:
    said = io.StringIO()
    sources = onnx_batch.describe_ports(_parsed(content))["inputs"]
    first = len(sources) == 1 and interface.find_layout(sources[0]["shape"], sample_shape).order == "NCHW"
    kept = [each["name"].replace(":", "__") for each in sources]
    with tempfile.TemporaryDirectory() as home, contextlib.chdir(home):
        generator = np.random.default_rng(0)
        np.save(EXAMPLES, generator.random((20, 128, 128, 3), dtype=np.float32))
        Path("model.onnx").write_bytes(content)
        try:
            with contextlib.redirect_stdout(said):
                onnx2tf.convert(
                    input_onnx_file_path="model.onnx",
                    output_folder_path="made",
                    keep_shape_absolutely_input_names=None if first else kept,
                    not_use_onnxsim=True,  # it would run whichever program of that name lies on PATH
                    non_verbose=True,
                )
            return Path("made/model_float32.tflite").read_bytes()
        except (SystemExit, OSError) as error:  # it leaves the process where it gives up, or leaves nothing behind
            raise RuntimeError(f"onnx2tf gave up: {_last(said.getvalue()) or error}") from None


def _folded(content: bytes) -> bytes:
    """The same graph after ONNX Runtime's plain rules: constants are computed, a Pad goes into its convolution.

    PyTorch's older exporter computes the sides of a padding by a dozen operators, and onnx2tf takes them in the wrong
    order: TensorFlow's networks, padded on one side more than on the other, end with "Dimensions must be equal".
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.log_severity_level = QUIET
    with tempfile.TemporaryDirectory() as home:
        path = Path(home) / "folded.onnx"
        options.optimized_model_filepath = str(path)
        onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        return path.read_bytes()


def _agrees(content: bytes, made: bytes) -> bool:
    """Whether TFLite answers a sample as ONNX Runtime does; also where that takes more than one tensor to find out."""
    from ai_edge_litert.interpreter import Interpreter

    session, interpreter = runner.session(content, None), Interpreter(model_content=made)
    sources, taken = session.get_inputs(), interpreter.get_input_details()
    results = interpreter.get_output_details()
    if len(sources) != 1 or len(taken) != 1 or len(results) != 1 or sources[0].type != "tensor(float)":
        return True
    x = np.random.default_rng(0).random(sources[0].shape, dtype=np.float32)
    interpreter.allocate_tensors()
    same = tuple(taken[0]["shape"]) == x.shape
    interpreter.set_tensor(taken[0]["index"], x if same else np.moveaxis(x, 1, -1))
    interpreter.invoke()
    expected, found = session.run(None, {sources[0].name: x})[0], interpreter.get_tensor(results[0]["index"])
    found = found if found.shape == expected.shape else np.moveaxis(found, -1, 1)
    return found.shape == expected.shape and bool(
        np.allclose(found, expected, rtol=CONVERSION_TOLERANCE, atol=CONVERSION_TOLERANCE * np.ptp(expected))
    )


def _last(said: str) -> str:
    """The last lines of what a program said, on one, without colours."""
    lines = [line.strip() for line in COLOURS.sub("", said).splitlines() if line.strip()]
    return " ".join(lines[-SHOWN_LINES:])[:300]
