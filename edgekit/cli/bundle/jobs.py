"""Jobs that open a model in a child process, because a broken model may crash its interpreter.

`run_job` starts them. The working folder holds the model's files as MODEL.tflite, MODEL.onnx, or MODEL.xml with
MODEL.bin.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.cli.bundle import readers
from edgekit.cli.bundle.readers import TARGETS, Size
from edgekit.core import subprocesses
from edgekit.core.errors import ConfigError, EdgekitError, ModelError, ResourceError
from edgekit.models.files.interface import QuantizationGrid, range_fault
from edgekit.runner import input_vector
from edgekit.runner.bundle.manifest import Manifest, RawSpec
from edgekit.runner.errors import BackendError, InputError, RunnerError
from edgekit.runner.input_encoding import passes_through
from edgekit.runner.preprocess import steps
from edgekit.runner.preprocess.transform import apply

MODEL = "model"
DRAFT = "draft.edge.zip"
LIMIT_S = 600
SAMPLES, OUTPUTS = "samples.npy", "outputs.npy"


def run_job(job: str, model: Path, folder: Path, **arguments: Any) -> dict[str, Any]:
    """Run a job, `"inspect"` or `"record"`, in its own process in `folder`, and return its answer.

    Raises
    ------
    EdgekitError
        The job's own error.
    BackendError
        The model crashed its interpreter or took too long.
    ResourceError
        The system killed the process, usually because memory ran out.
    """
    try:
        answer: dict[str, Any] = subprocesses.call(
            f"edgekit.cli.bundle.jobs:{job}", {"folder": str(folder), **arguments}, folder, LIMIT_S
        )
        return answer
    except subprocesses.ChildDied as death:
        raise _error_of_death(model, death.ended) from None


def _error_of_death(model: Path, end: subprocesses.ChildExit) -> Exception:
    if end.timed_out:
        return BackendError(
            f"{model}: no answer within {LIMIT_S} s; the model is too slow on this machine, or broken: give fewer "
            f"inputs, or export the model again"
        )
    if end.was_killed:
        return ResourceError(f"{model}: {end.describe('its interpreter')}; free some memory")
    if end.signal:
        return BackendError(f"{model}: crashed its interpreter ({end.signal}); the model is broken, export it again")
    message = subprocesses.last_useful_line(end.output)
    return ModelError(f"{model}: cannot be examined: {message}; report it with the file")


def inspect(folder: str, name: str, size: Size = None, two_classes: bool = False) -> dict[str, Any]:
    """Return the model's "inputs" and "outputs" (name, shape, dtype, …), and what was changed in its file ("changes").

    "integers" says whether the model is quantized. `size` is the height and width of the pictures that the model
    receives, if the file leaves them open. For an ONNX file, "classes" and "regressor" describe a classic model, such
    as a decision tree; with `two_classes`, the single probability of such a model becomes two scores.
    """
    (path,) = (path for path in Path(folder).iterdir() if path.stem == MODEL and path.suffix in TARGETS)
    try:
        return readers.read_specs(path, name, size, two_classes)
    except (EdgekitError, RunnerError):
        raise
    except Exception as error:  # the libraries' errors have no common base class
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise ModelError(f"{name}: cannot be opened: {reason}; {_advice(path, error)}") from None


def _advice(path: Path, error: Exception) -> str:
    """Return advice on an error. It is about the file, unless the cause is that the machine lacks something."""
    if isinstance(error, ImportError):
        return f"install {error.name or 'that package'}"
    if isinstance(error, MemoryError):
        return "free some memory"
    return readers.type_hint(path, str(error))


def record(
    folder: str,
    name: str,
    paths: Sequence[str],
    count: int,
    grids: Sequence[dict[str, Any] | None] = (),
    classes: Sequence[str] = (),
) -> dict[str, Any]:
    """Save the samples in `paths` (n, *raw) and the outputs (n, *output) that the draft bundle gives for them.

    From a table, more than `count` rows are run, spread evenly over it, so that golden samples can be selected among
    them. For a model with states, the first `count` samples of all files are run as one stream.

    Raises
    ------
    ConfigError
        An integer input of the model cannot represent the preprocessed samples.
    ModelError
        A classic model's own label, one of its `classes`, is not the label with the largest score.
    """
    from edgekit.runner import bundle as bundles
    from edgekit.runner import postprocess
    from edgekit.runner.model import open_model

    working_folder = Path(folder)
    model = open_model(bundles.read(working_folder / DRAFT))
    outputs: list[np.ndarray] = []
    samples: list[np.ndarray] = []
    tensors: list[dict[str, np.ndarray]] = []
    has_label, inputs = (working_folder / readers.ORIGINAL_MODEL).exists(), model.manifest.inputs
    states = model.states()
    for path in paths:
        try:
            if states is not None and len(samples) == count:
                break
            remaining = None if states is None else count - len(samples)
            for sample in _read_samples(path, model.manifest.raw, count, model.bundle.members, remaining):
                _check_dtype(sample, model.manifest.raw)
                x = model.prepare(sample)
                output = model.execute(x, states)
                if has_label:
                    parts = [x] if len(inputs) == 1 else model.backend.tensors(x)
                    tensors.append({each.name: part for each, part in zip(inputs, parts, strict=True)})
                postprocess.check_finite(output)
                outputs.append(output)
                samples.append(sample)
        except RunnerError as error:
            message = str(error)
            raise type(error)(message if message.startswith(path) else f"{path}: {message}") from None
    for number, grid in enumerate(grids):
        if grid is not None:
            _check_input_range(QuantizationGrid(**grid), np.stack(samples), model.manifest, number)
    np.save(working_folder / SAMPLES, np.stack(samples))
    np.save(working_folder / OUTPUTS, np.stack(outputs))
    label = _label_agreement(working_folder, name, tensors, np.stack(outputs), classes) if has_label else ""
    return {"interpreter": model.backend.name, "version": model.backend.version, "label": label}


def _label_agreement(
    working_folder: Path,
    name: str,
    tensors: Sequence[dict[str, np.ndarray]],
    scores: np.ndarray,
    classes: Sequence[str],
) -> str:
    """Describe in words whether the label of the original model agrees with the recorded scores."""
    from edgekit.models.files import onnx_classic

    try:
        return onnx_classic.compare_labels(
            (working_folder / readers.ORIGINAL_MODEL).read_bytes(), tensors, scores, tuple(classes)
        )
    except ModelError as error:
        raise ModelError(f"{name}: {error}") from None


def _read_samples(
    path: str, raw: RawSpec, count: int, members: Mapping[str, bytes], remaining: int | None = None
) -> list[np.ndarray]:
    """Read the first sample of a file, or rows of a table. With `remaining`, read up to that number of samples."""
    from edgekit.core import golden
    from edgekit.runner import input_path, inputs

    if remaining is not None:
        return [sample.raw for sample in islice(inputs.samples(path, raw, members=members), remaining)]
    if not (path.lower().endswith(".csv") and input_path.find_step(raw.steps, "rows")):
        return [inputs.read_first_sample(path, raw, members=members)]
    rows = [sample.raw for sample in inputs.samples(path, raw)]
    return [rows[position] for position in golden.candidate_indices(len(rows), count)]


def _check_dtype(sample: np.ndarray, raw: RawSpec) -> None:
    """Check the dtype of an array that has the right shape.

    Raises
    ------
    InputError
        The dtype differs. The message names the option that allows it.
    """
    if sample.dtype == raw.dtype or sample.shape != raw.shape:
        return
    dtype = "float32" if sample.dtype.kind == "f" else sample.dtype.name
    message = (
        f"sample: got {sample.dtype}{list(sample.shape)}; the bundle takes {raw.dtype}{list(raw.shape)} ({raw.kind})"
    )
    allowed = [name for name in steps.RAW_DTYPES if (name == "int32") == (raw.kind == "text")]
    if dtype not in allowed:
        raise InputError(f"{message}; save it as {raw.dtype}, or as one of {', '.join(allowed)}")
    condition = "" if sample.dtype == dtype else f" once it is saved as {dtype}"
    raise InputError(f"{message}; --dtype {dtype} fits{condition}")


def _check_input_range(grid: QuantizationGrid, samples: np.ndarray, manifest: Manifest, number: int) -> None:
    if tensors := manifest.raw.tensors:
        part = input_vector.split(samples, [each["shape"] for each in tensors])[number]
        fault = (
            "" if tensors[number]["dtype"] != "float32" else range_fault(grid, part, "float32", (), "the samples hold")
        )
        if fault:
            raise ConfigError(f"--golden: tensor {tensors[number]['name']}: the model {fault}")
        return
    if passes_through(manifest.preprocess, manifest.raw.dtype, manifest.input.dtype):
        return
    fault = range_fault(grid, apply(manifest.preprocess, samples), manifest.raw.dtype, manifest.preprocess)
    if fault:
        hint = "" if manifest.raw.dtype != "float32" else f"; for the model's own integers give --dtype {grid.dtype}"
        raise ConfigError(f"--preprocess: the model {fault}{hint}")
