"""A teacher that comes as a file: what it is, and its logits for raw samples.

Nothing heavy is imported here: the file is opened in a process of its own, which a broken one may take with it.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.core import subprocesses
from edgekit.core.config import available_cores
from edgekit.core.errors import ConfigError, EdgekitError, ModelError, ResourceError
from edgekit.core.progress import step
from edgekit.core.tasks import Task
from edgekit.models.files import detect
from edgekit.runner.errors import InputError
from edgekit.runner.preprocess import steps

if TYPE_CHECKING:
    import numpy as np

    from edgekit.models.files.interface import Tensors

SERVED: tuple[Task, ...] = ("classification", "regression", "detection", "segmentation")
"""Tasks whose outputs a file gives as they are wanted."""
LIBRARIES = ("ai-edge-litert", "keras", "onnxruntime", "openvino", "tensorflow")
"""Those that may run it."""
SAMPLES, LOGITS, JOURNAL = "samples.npy", "logits.npy", "journal"
"""Files in the folder of the process that runs it; the journal has the number of answered samples, one a line."""


@dataclass(frozen=True)
class TeacherFile:
    """A model file. `preprocess` are its own steps from a raw sample to its input, none: the numbers as they are.

    kind: the module in `edgekit.models.files` that opens it
    sha256: of the file's bytes; where its weights lie in another file, of both together
    """

    path: Path
    kind: str
    preprocess: list[dict[str, Any]]
    sha256: str


def check_task(where: str, task: Task) -> None:
    """ConfigError for a model file in a run whose task none serves."""
    if task not in SERVED:
        raise ConfigError(
            f"task and {where} disagree: a model file serves {', '.join(SERVED)}, task is {task}; name a builder"
        )


def open_file(path: Path, preprocess: Sequence[dict[str, Any]] = ()) -> TeacherFile:
    """The teacher at `path`, not loaded yet; ModelError where no such model is there, ConfigError for a wrong step."""
    try:
        steps.check_keys(preprocess)
    except InputError as error:
        raise ConfigError(f"{path}: {error}") from None
    try:
        kind = detect.model_kind(path)
        return TeacherFile(path, kind, [dict(step) for step in preprocess], detect.sha256(path, kind))
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror or error}") from None


def logits(
    teacher: TeacherFile,
    x: np.ndarray,
    *,
    classes: int,
    timeout_s: float,
    threads: int = 0,
    task: Task = "classification",
    tensors: Tensors = (),
    progress: Callable[[int, int], None] | None = None,
) -> np.ndarray:
    """Logits (n, classes) float32 of raw samples (n, *sample), uint8 or float32, maybe a memory map.

    Outputs that are probabilities or sigmoids are undone (see `outputs.logits`); of a regression they are the values
    (n, values), of a detection (n, points, 4 + classes), of a segmentation (n, classes, rows, columns). `tensors` are
    those that a sample joins. 0 threads: all cores. `progress` is called with (done, n) now and then.

    Raises ModelError for a model that cannot be opened or run, crashes, takes longer than `timeout_s`, does not fit the
    samples or the classes, or gives NaN. Raises ConfigError for steps that do not fit the samples, and ResourceError if
    there is no room for the samples' copy. Each names the file and the cause in one line.
    """
    import numpy as np

    if not len(x):
        return np.empty((0, classes), dtype=np.float32)
    return _run(teacher, x, classes, timeout_s, threads, task, tensors, counted=False, progress=progress)[0]


def logits_and_facts(
    teacher: TeacherFile,
    x: np.ndarray,
    *,
    classes: int,
    timeout_s: float,
    threads: int = 0,
    task: Task = "classification",
    tensors: Tensors = (),
) -> tuple[np.ndarray, dict[str, Any]]:
    """The same, of at least one sample, and the model's facts: the fields of `models.store.Source`."""
    found, facts = _run(teacher, x, classes, timeout_s, threads, task, tensors, counted=True)
    return found, {"kind": teacher.kind, "file": teacher.path.name, **facts}


def _run(
    teacher: TeacherFile,
    x: np.ndarray,
    classes: int,
    timeout_s: float,
    threads: int,
    task: Task,
    tensors: Tensors,
    *,
    counted: bool,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[np.ndarray, dict[str, Any]]:
    import numpy as np

    if tensors and teacher.preprocess:
        raise ConfigError(
            f"{teacher.path}: got {len(teacher.preprocess)} steps of preprocess, and samples of several tensors take "
            "none, for each would change all; write preprocess: [], and let the file scale its inputs"
        )
    try:
        steps.check(teacher.preprocess, x.shape[1:], str(x.dtype))
    except InputError as error:
        raise ConfigError(f"{teacher.path}: {error}") from None
    if detect.sha256(teacher.path, teacher.kind) != teacher.sha256:
        raise ModelError(f"{teacher.path}: has changed while it was in use; start again")
    with contextlib.ExitStack() as stack:
        try:
            home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="edgekit-teacher-")))
            np.save(home / SAMPLES, x)
        except OSError as error:
            raise ResourceError(
                f"{teacher.path}: cannot copy {len(x):,} samples to {tempfile.gettempdir()} "
                f"({error.strerror or error}); free some space there, or set TMPDIR to another folder"
            ) from error
        shown = stack.enter_context(step("answers of the model file", "samples", len(x)))

        def seen(count: int) -> None:
            shown.update(count)
            if progress is not None:
                progress(count, len(x))

        job = {
            "home": str(home.absolute()),
            "path": str(teacher.path.absolute()),
            "kind": teacher.kind,
            "preprocess": teacher.preprocess,
            "classes": classes,
            "threads": threads or available_cores(),
            "task": task,
            "counted": counted,
            "tensors": list(tensors),
        }
        facts = _in_a_process(teacher.path, job, home, timeout_s, seen)
        return np.load(home / LOGITS, allow_pickle=False), facts


def _in_a_process(
    path: Path, job: dict[str, Any], home: Path, timeout_s: float, seen: Callable[[int], None]
) -> dict[str, Any]:
    """The facts of the model, its logits left in `home`; its error, or ModelError where its process dies or is late."""
    journal, count = subprocesses.FileTail(home / JOURNAL), 0

    def look() -> None:
        nonlocal count
        if lines := journal.new():
            count = int(lines[-1])
            seen(count)

    quiet = {
        **subprocesses.QUIET_ENVIRONMENT,
        "TMPDIR": str(home.absolute()),
    }  # what it leaves when it is killed goes with it
    try:
        facts: dict[str, Any] = subprocesses.call(
            "edgekit.training.teachers.worker:leave_logits", job, home, timeout_s, quiet, should_stop=look
        )
    except EdgekitError as error:
        kind = ModelError if type(error) is EdgekitError else type(error)  # the latter: of the runner
        raise kind(f"{path}: {error}") from None
    except subprocesses.ChildDied as died:
        limit = f"not finished after {timeout_s:g} s, with {count:,} samples done; allow it more time, or more threads"
        raise ModelError(f"{path}: {limit if died.ended.timed_out else _cause(died.ended)}") from None
    return facts


def _cause(ended: subprocesses.ChildExit) -> str:
    if ended.was_killed:
        return "was killed (SIGKILL), as the system does when memory runs out; free some"
    if ended.signal:
        return f"crashed its interpreter ({ended.signal}); the file is broken, export it again"
    return f"cannot be run: {subprocesses.last_useful_line(ended.output)}"
