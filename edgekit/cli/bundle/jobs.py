"""Jobs on a model in a child process, because a broken one may crash its interpreter: its specs, and its outputs.

`run` starts them. The working folder holds the model's files as MODEL.tflite, MODEL.onnx, or MODEL.xml with MODEL.bin.
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


def run(job: str, model: Path, folder: Path, **arguments: Any) -> dict[str, Any]:
    """What a job, `"inspect"` or `"record"`, answers when it works in `folder` in a process of its own.

    Raises the job's own error, BackendError where the model crashes its interpreter or takes too long, and
    ResourceError where the system killed it, as it does when memory runs out.
    """
    try:
        answer: dict[str, Any] = subprocesses.call(
            f"edgekit.cli.bundle.jobs:{job}", {"folder": str(folder), **arguments}, folder, LIMIT_S
        )
        return answer
    except subprocesses.ChildDied as died:
        raise _death(model, died.ended) from None


def _death(model: Path, ended: subprocesses.ChildExit) -> Exception:
    if ended.timed_out:
        return BackendError(
            f"{model}: no answer within {LIMIT_S} s; it is too slow here, or broken: give fewer inputs, or export again"
        )
    if ended.was_killed:
        return ResourceError(f"{model}: {ended.describe('its interpreter')}; free some memory")
    if ended.signal:
        return BackendError(f"{model}: crashed its interpreter ({ended.signal}); the model is broken, export it again")
    last = subprocesses.last_useful_line(ended.output)
    return ModelError(f"{model}: cannot be examined: {last}; report it with the file")


def inspect(folder: str, name: str, size: Size = None, two_classes: bool = False) -> dict[str, Any]:
    """{"inputs", "outputs": [{name, shape, dtype, …}], "changes": [in words], "integers": is it quantized}.

    `size` is the height and width of the pictures that reach the model, where that is open in the file. Of a classic
    model as ONNX there are "classes" and "regressor" too; with `two_classes` its one probability becomes two scores.
    """
    (path,) = (path for path in Path(folder).iterdir() if path.stem == MODEL and path.suffix in TARGETS)
    try:
        return readers.read(path, name, size, two_classes)
    except (EdgekitError, RunnerError):
        raise
    except Exception as error:  # the libraries' errors share no base class
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise ModelError(f"{name}: cannot be opened: {reason}; {_instead(path, error)}") from None


def _instead(path: Path, error: Exception) -> str:
    """What to do about it: what the machine lacks says nothing of the file."""
    if isinstance(error, ImportError):
        return f"install {error.name or 'that package'}"
    if isinstance(error, MemoryError):
        return "free some memory"
    return readers.type_hint(path, str(error))


def record(
    folder: str,
    name: str,
    paths: Sequence[str],
    most: int,
    grids: Sequence[dict[str, Any] | None] = (),
    classes: Sequence[str] = (),
) -> dict[str, Any]:
    """Leave the samples in `paths` (n, *raw), and the outputs (n, *output) that the draft bundle's interpreter gives.

    Of a table whose rows are samples, as many rows as are worth trying where `most` are kept, spread over all. Of a
    model with states, the first `most` samples of all files, as one stream.

    ConfigError where one of the model's inputs, integers on its grid, cannot hold what preprocess makes of the samples.
    ModelError where a classic model's own label, one of its `classes`, is another than that of its largest score.
    """
    from edgekit.runner import bundle as bundles
    from edgekit.runner import postprocess
    from edgekit.runner.model import open_model

    home = Path(folder)
    model = open_model(bundles.read(home / DRAFT))
    found: list[np.ndarray] = []
    samples: list[np.ndarray] = []
    given: list[dict[str, np.ndarray]] = []
    has_label, inputs = (home / readers.GIVEN).exists(), model.manifest.inputs
    states = model.states()
    for path in paths:
        try:
            if states is not None and len(samples) == most:
                break
            left = None if states is None else most - len(samples)
            for sample in _samples(path, model.manifest.raw, most, model.bundle.members, left):
                _check_dtype(sample, model.manifest.raw)
                x = model.prepare(sample)
                output = model.execute(x, states)
                if has_label:
                    parts = [x] if len(inputs) == 1 else model.backend.tensors(x)
                    given.append({each.name: part for each, part in zip(inputs, parts, strict=True)})
                postprocess.check_finite(output)
                found.append(output)
                samples.append(sample)
        except RunnerError as error:
            message = str(error)
            raise type(error)(message if message.startswith(path) else f"{path}: {message}") from None
    for place, grid in enumerate(grids):
        if grid is not None:
            _check_input_range(QuantizationGrid(**grid), np.stack(samples), model.manifest, place)
    np.save(home / SAMPLES, np.stack(samples))
    np.save(home / OUTPUTS, np.stack(found))
    label = _label(home, name, given, np.stack(found), classes) if has_label else ""
    return {"interpreter": model.backend.name, "version": model.backend.version, "label": label}


def _label(
    home: Path, name: str, given: Sequence[dict[str, np.ndarray]], scores: np.ndarray, classes: Sequence[str]
) -> str:
    """How the label of the model as it came agrees with the recorded scores, in words."""
    from edgekit.models.files import onnx_classic

    try:
        return onnx_classic.compare_labels((home / readers.GIVEN).read_bytes(), given, scores, tuple(classes))
    except ModelError as error:
        raise ModelError(f"{name}: {error}") from None


def _samples(
    path: str, raw: RawSpec, most: int, members: Mapping[str, bytes], left: int | None = None
) -> list[np.ndarray]:
    """The first sample of a file, or rows of a table; with `left`, its first samples, so many at most."""
    from edgekit.core import golden
    from edgekit.runner import input_path, inputs

    if left is not None:
        return [sample.raw for sample in islice(inputs.samples(path, raw, members=members), left)]
    if not (path.lower().endswith(".csv") and input_path.find_step(raw.steps, "rows")):
        return [inputs.read_first_sample(path, raw, members=members)]
    rows = [sample.raw for sample in inputs.samples(path, raw)]
    return [rows[position] for position in golden.candidate_indices(len(rows), most)]


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


def _check_input_range(grid: QuantizationGrid, samples: np.ndarray, manifest: Manifest, place: int) -> None:
    if tensors := manifest.raw.tensors:
        part = input_vector.split(samples, [each["shape"] for each in tensors])[place]
        holds = (
            "" if tensors[place]["dtype"] != "float32" else range_fault(grid, part, "float32", (), "the samples hold")
        )
        if holds:
            raise ConfigError(f"--golden: tensor {tensors[place]['name']}: the model {holds}")
        return
    if passes_through(manifest.preprocess, manifest.raw.dtype, manifest.input.dtype):
        return
    problem = range_fault(grid, apply(manifest.preprocess, samples), manifest.raw.dtype, manifest.preprocess)
    if problem:
        own = "" if manifest.raw.dtype != "float32" else f"; for the model's own integers give --dtype {grid.dtype}"
        raise ConfigError(f"--preprocess: the model {problem}{own}")
