"""A teacher that comes as a file: what it is, and its logits for raw samples.

Nothing heavy is imported here: the file is opened in a process of its own, which a broken one may take with it.
"""

from __future__ import annotations

import contextlib
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit import looks
from edgekit.config import cores
from edgekit.digests import digest, sha256_file
from edgekit.errors import ConfigError, ModelError, ResourceError
from edgekit.runner import steps
from edgekit.runner.errors import InputError
from edgekit.teachers import launch

if TYPE_CHECKING:
    import numpy as np

KINDS = {words: kind for kind, words in looks.MODELS.items()} | {looks.HDF5: "keras"}
KERAS_MEMBERS = {"config.json", "model.weights.h5"}
LIBRARIES = ("ai-edge-litert", "keras", "onnxruntime", "openvino", "tensorflow")
"""Those that may run it."""
WANTED = "a model file is a .tflite, .onnx, OpenVINO .xml, .keras or .h5 file"
HEAD_BYTES = 4096
ONNX_WEIGHTS = ".data"
"""What PyTorch's exporter adds to the name of an .onnx file for that of its weights."""


@dataclass(frozen=True)
class TeacherFile:
    """A model file. `preprocess` are its own steps from a raw sample to its input, none: the numbers as they are.

    kind: the module in this folder that opens it
    sha256: of the file's bytes; where its weights lie in another file, of both together
    """

    path: Path
    kind: str
    preprocess: list[dict[str, Any]]
    sha256: str


def open_file(path: Path, preprocess: Sequence[dict[str, Any]] = ()) -> TeacherFile:
    """The teacher at `path`, not loaded yet; ModelError where no such model is there, ConfigError for a wrong step."""
    try:
        steps.check_keys(preprocess)
    except InputError as error:
        raise ConfigError(f"{path}: {error}") from None
    if not path.is_file():
        raise ModelError(f"{path}: {'a folder' if path.is_dir() else 'no such file'}; {WANTED}")
    try:
        kind = _kind(path)
        return TeacherFile(path, kind, [dict(step) for step in preprocess], _sha256(path, kind))
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror or error}") from None


def logits(
    teacher: TeacherFile,
    x: np.ndarray,
    *,
    classes: int,
    timeout_s: float,
    threads: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> np.ndarray:
    """Logits (n, classes) float32 of raw samples (n, *sample), uint8 or float32, maybe a memory map.

    Outputs that are probabilities become their logarithm (see `scores.logits`). 0 threads: all cores. `progress` is
    called with (done, n) now and then.

    Raises ModelError, naming the file and the cause in one line, for a model that cannot be opened or run, crashes,
    takes longer than `timeout_s`, does not fit the samples or the classes, or gives NaN; ConfigError for steps that do
    not fit the samples; ResourceError where there is no room for the samples' copy.
    """
    import numpy as np

    try:
        steps.check(teacher.preprocess, x.shape[1:], str(x.dtype))
    except InputError as error:
        raise ConfigError(f"{teacher.path}: {error}") from None
    if not len(x):
        return np.empty((0, classes), dtype=np.float32)
    if _sha256(teacher.path, teacher.kind) != teacher.sha256:
        raise ModelError(f"{teacher.path}: has changed while it was in use; start again")
    job = {
        "path": str(teacher.path.absolute()),
        "kind": teacher.kind,
        "preprocess": teacher.preprocess,
        "classes": classes,
        "threads": threads or cores(),
    }
    with contextlib.ExitStack() as stack:
        try:
            home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="edgekit-teacher-")))
            np.save(home / launch.SAMPLES, x)
        except OSError as error:
            raise ResourceError(
                f"{teacher.path}: cannot copy {len(x):,} samples to {tempfile.gettempdir()} "
                f"({error.strerror or error}); free some space there, or set TMPDIR to another folder"
            ) from error
        launch.run(teacher.path, job, home, timeout_s, lambda done: progress(done, len(x)) if progress else None)
        found: np.ndarray = np.load(home / launch.LOGITS, allow_pickle=False)
    return found


def _kind(path: Path) -> str:
    with open(path, "rb") as stream:
        words = looks.like(stream.read(HEAD_BYTES))
    if words in KINDS:
        return KINDS[words]
    if _is_keras(path):
        return "keras"
    raise ModelError(f"{path}: looks like {words}; {WANTED}")


def _is_keras(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            return set(archive.namelist()) >= KERAS_MEMBERS
    except zipfile.BadZipFile:
        return False


def members(path: Path, kind: str) -> list[Path]:
    """The file and the weights that its format may keep beside it; ModelError where they are missing."""
    weights = path.with_suffix(".bin") if kind == "openvino" else path.with_name(path.name + ONNX_WEIGHTS)
    if kind == "openvino" and not weights.is_file():
        raise ModelError(f"{path}: its weights are missing; put {weights.name} beside it")
    return [path, weights] if kind in ("openvino", "onnx") and weights.is_file() else [path]


def _sha256(path: Path, kind: str) -> str:
    first, *others = (sha256_file(each) for each in members(path, kind))
    return digest([first, *others]) if others else first
