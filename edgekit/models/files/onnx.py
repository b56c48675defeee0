"""ONNX files, run by ONNX Runtime on the CPU and converted to TFLite by onnx2tf."""

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
UNSUPPORTED_TARGETS: dict[str, str] = {}
SHOWN_LINES = 3
EXAMPLES = "calibration_image_sample_data_20x128x128x3_float32.npy"
"""Images that onnx2tf would download, unless the folder in which it runs has a file of this name."""
LEGACY = "TF_USE_LEGACY_KERAS"
"""A variable that onnx2tf sets when it is imported. Processes started after that could not read a Keras 3 file."""
CONVERSION_TOLERANCE = 1e-2
"""The largest allowed difference between TFLite's and ONNX Runtime's answers, as a share of the range of the answers.

Differences by rounding are smaller.
"""
FIRST_OPSET_WITH_NUM_OUTPUTS = 18
"""From this version of the operator set on, a Split without sizes has to state its number of outputs."""
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
ONE_FILE = "python -c \"import onnx; onnx.save(onnx.load('MODEL.onnx'), 'one-file.onnx')\""


def open(path: Path, threads: int, tensors: Tensors = (), needed: TaskOutputs = ANY_OUTPUT) -> OpenedModel:
    """Open the model at `path` from memory, with the file of weights that PyTorch may put beside it.

    No other file is read.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = QUIET
    content, weight_files = _read(path), members(path, "onnx")[1:]
    # first, because ONNX Runtime would look for missing weights in the current folder
    _check_weights(path, _parse(content), weight_files)
    for file in weight_files:
        weights = file.read_bytes()
        options.add_external_initializers_from_files_in_memory([file.name], [weights], [len(weights)])
    session = runner.session(content, options)
    inputs = [file_input(each) for each in session.get_inputs()]
    check_inputs_and_outputs([each.name for each in inputs], len(session.get_outputs()), tensors, needed.max_outputs)
    for each in inputs:
        if each.dtype not in DTYPES.values():
            raise ModelError(f"its input is {each.dtype}; a model file may take {', '.join(DTYPES.values())}")

    def run(x: np.ndarray) -> np.ndarray:
        return needed.join(session.run(None, input_arrays(x, inputs, tensors)))

    def for_shape(shape: tuple[int, ...]) -> Run:
        return run  # the call itself raises if the shape does not fit

    return OpenedModel(joined_input_shape(inputs, tensors), for_shape)


def file_input(port: Any) -> FileInput:
    """Return an input of a session of ONNX Runtime; open sides are -1."""
    sides = [side if isinstance(side, int) else -1 for side in port.shape]
    return FileInput(port.name, sides, DTYPES.get(port.type, port.type))


def on_device(path: Path, tensors: Tensors = (), needed: TaskOutputs = ANY_OUTPUT) -> DeviceModel:
    """Return the model as the runner opens it: in one file, with an open batch set to one."""
    content = _read(path)
    model = _parse(content)
    sides = [side for ports in onnx_batch.describe_ports(model).values() for port in ports for side in port["shape"]]
    if onnx_batch.has_external_weights(model) or min(sides, default=0) < 0:
        content = onnx(path)
        model = _parse(content)
    ports = onnx_batch.describe_ports(model)
    check_inputs_and_outputs(
        [each["name"] for each in ports["inputs"]], len(ports["outputs"]), tensors, needed.max_outputs
    )
    sources, results = (
        [TensorSpec(port["name"], tuple(port["shape"]), port["dtype"], "ANY") for port in ports[side]]
        for side in ("inputs", "outputs")
    )
    return DeviceModel({path.name: content}, sources, needed.in_task_order(results))


def refusal(path: Path, target: str) -> str:
    """Return why the file's operators prevent its conversion for a target; empty if they do not."""
    return "" if target == "onnx" else _classic(path).refusal


def float_only(path: Path) -> str:
    """Return the reason why the model is only converted in float; empty if its weights can be quantized."""
    operators = _classic(path).operators
    return f"no quantizer supports {', '.join(operators)}, so the model stays in float" if operators else ""


def is_quantized(path: Path) -> bool:
    """Return whether some of its arithmetic is on 8-bit integers."""
    return onnx_batch.is_quantized(_parse(path.read_bytes()))


def _classic(path: Path) -> onnx_classic.ClassicModel:
    return onnx_classic.read(path.read_bytes())


def _read(path: Path) -> bytes:
    """Read the file without the label and the ZipMap that converters of classic models add to its scores."""
    return _classic(path).content


def _parse(content: bytes) -> Any:
    import onnx as library

    return library.load_model_from_string(content)


def _check_weights(path: Path, model: Any, weight_files: Sequence[Path]) -> None:
    """Raise ModelError if the weights are missing, or in another file than the usual one."""
    external_files, usual = onnx_batch.external_files(model), path.name + ONNX_WEIGHTS
    if external_files - {usual}:
        raise ModelError(f"keeps its weights in other files than {usual}; convert it to one file: {ONE_FILE}")
    if external_files and not weight_files:
        raise ModelError(f"its weights are missing; put {usual} beside it")


def onnx(path: Path) -> bytes:
    """Return the model in one file, with an open batch set to one; raise ModelError if its weights are elsewhere."""
    import onnx as library

    model, weight_files = _parse(_read(path)), members(path, "onnx")[1:]
    _check_weights(path, model, weight_files)
    if weight_files:
        library.load_external_data_for_model(model, str(path.parent))
    onnx_batch.set_batch_to_one(model)
    return bytes(model.SerializeToString(deterministic=True))


def openvino(path: Path, names: Sequence[str] = ()) -> Any:
    """Return an `openvino.Model` for a batch of one."""
    import openvino as ov

    return batch_of_one(ov.Core().read_model(onnx(path)))


def tflite(
    path: Path, precision: str, samples: Mapping[str, np.ndarray] | None, sample_shape: tuple[int, ...]
) -> bytes:
    """Convert the model to float TFLite for a batch of one, with onnx2tf; images become channels last.

    The file is converted as it is and, if the result does not answer as ONNX Runtime does, again with its constants
    folded. `sample_shape`, channels last, shows in which layout the file expects images, because onnx2tf assumes that
    all images and windows are channels first.

    Raises
    ------
    ModelError
        onnx2tf cannot be installed.
    """
    compatibility.ensure_onnx2tf()
    before = os.environ.get(LEGACY)
    try:
        import onnx2tf
    finally:
        os.environ.pop(LEGACY, None)
        os.environ |= {LEGACY: before} if before is not None else {}
    content = _with_equal_splits(onnx(path))
    converted: list[bytes] = []
    errors: list[Exception] = []
    for prepare in (lambda: content, lambda: _fold_constants(content)):
        try:
            candidate = _run_onnx2tf(onnx2tf, prepare(), sample_shape)
            if _agrees(content, candidate):
                return candidate
            converted.append(candidate)
        except Exception as error:  # onnx2tf raises whatever the layers that it builds raise
            errors.append(error)
    if converted:
        return converted[0]  # the check after the conversion reports where it differs
    raise errors[0]


def _run_onnx2tf(onnx2tf: Any, content: bytes, sample_shape: tuple[int, ...]) -> bytes:
    output = io.StringIO()
    sources = onnx_batch.describe_ports(_parse(content))["inputs"]
    channels_first = len(sources) == 1 and interface.find_layout(sources[0]["shape"], sample_shape).order == "NCHW"
    input_names = [each["name"].replace(":", "__") for each in sources]
    with tempfile.TemporaryDirectory() as home, contextlib.chdir(home):
        generator = np.random.default_rng(0)
        np.save(EXAMPLES, generator.random((20, 128, 128, 3), dtype=np.float32))
        Path("model.onnx").write_bytes(content)
        try:
            with contextlib.redirect_stdout(output):
                onnx2tf.convert(
                    input_onnx_file_path="model.onnx",
                    output_folder_path="made",
                    keep_shape_absolutely_input_names=None if channels_first else input_names,
                    not_use_onnxsim=True,  # otherwise onnx2tf runs any program called onnxsim on PATH
                    non_verbose=True,
                )
            return Path("made/model_float32.tflite").read_bytes()
        except (SystemExit, OSError) as error:  # onnx2tf exits the process when it gives up, or writes no file
            raise RuntimeError(f"onnx2tf gave up: {_last_lines(output.getvalue()) or error}") from None


def _with_equal_splits(content: bytes) -> bytes:
    """Return the model after removing the lists of sizes from splits into equal parts, which do not need them.

    onnx2tf passes a list of sizes on as 64-bit integers, for which TFLite has no split of its own.
    """
    import onnx as library

    model = _parse(content)
    constants = {each.name: each for each in model.graph.initializer}
    constants |= {
        node.output[0]: attribute.t
        for node in model.graph.node
        if node.op_type == "Constant"
        for attribute in node.attribute
        if attribute.name == "value"
    }
    version = next((each.version for each in model.opset_import if each.domain in ("", "ai.onnx")), 0)
    for node in model.graph.node:
        if node.op_type != "Split" or len(node.input) < 2 or node.input[1] not in constants:
            continue
        sizes = library.numpy_helper.to_array(constants[node.input[1]])
        if len(set(sizes.tolist())) == 1:
            del node.input[1:]
            if version >= FIRST_OPSET_WITH_NUM_OUTPUTS:
                node.attribute.append(library.helper.make_attribute("num_outputs", len(node.output)))
    return bytes(model.SerializeToString(deterministic=True))


def _fold_constants(content: bytes) -> bytes:
    """Apply ONNX Runtime's basic optimisations: constants are computed, and a Pad is merged into its convolution.

    PyTorch's older exporter computes the sides of a padding with a dozen operators, and onnx2tf reads them in the wrong
    order. TensorFlow's networks with asymmetric padding then fail with "Dimensions must be equal".
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


def _agrees(content: bytes, converted: bytes) -> bool:
    """Return whether TFLite answers a sample as ONNX Runtime does.

    Models with several inputs or outputs, or with an input that is not float32, are not compared; the result is True.
    """
    from ai_edge_litert.interpreter import Interpreter

    session, interpreter = runner.session(content, None), Interpreter(model_content=converted)
    sources, inputs = session.get_inputs(), interpreter.get_input_details()
    results = interpreter.get_output_details()
    if len(sources) != 1 or len(inputs) != 1 or len(results) != 1 or sources[0].type != "tensor(float)":
        return True
    x = np.random.default_rng(0).random(sources[0].shape, dtype=np.float32)
    interpreter.allocate_tensors()
    same_layout = tuple(inputs[0]["shape"]) == x.shape
    interpreter.set_tensor(inputs[0]["index"], x if same_layout else np.moveaxis(x, 1, -1))
    interpreter.invoke()
    expected, output = session.run(None, {sources[0].name: x})[0], interpreter.get_tensor(results[0]["index"])
    output = output if output.shape == expected.shape else np.moveaxis(output, -1, 1)
    return output.shape == expected.shape and bool(
        np.allclose(output, expected, rtol=CONVERSION_TOLERANCE, atol=CONVERSION_TOLERANCE * np.ptp(expected))
    )


def _last_lines(output: str) -> str:
    """Join the last lines of a program's output, without colours."""
    lines = [line.strip() for line in COLOURS.sub("", output).splitlines() if line.strip()]
    return " ".join(lines[-SHOWN_LINES:])[:300]
