"""A teacher that is a model file, and its logits for raw samples.

No large library is imported here, because the file is opened in a process of its own: a broken file may crash that
process, but not this one.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.core import subprocesses
from edgekit.core.config import available_cores
from edgekit.core.errors import ConfigError, EdgekitError, ModelError, ResourceError
from edgekit.core.progress import step
from edgekit.core.tasks import BOX_TASKS, Task
from edgekit.models.files import detect
from edgekit.runner.errors import InputError
from edgekit.runner.preprocess import steps

if TYPE_CHECKING:
    import numpy as np

    from edgekit.models.files.interface import Tensors

SUPPORTED_TASKS: tuple[Task, ...] = ("classification", "regression", *BOX_TASKS, "segmentation")
"""Tasks for which a model file can be used."""
LIBRARIES = ("ai-edge-litert", "keras", "onnxruntime", "openvino", "tensorflow")
"""Libraries that may run a model file."""
SAMPLES, LOGITS, JOURNAL, CUT = "samples.npy", "logits.npy", "journal", "cut.onnx"
"""Files in the folder of the process that runs the model.

The journal's last line is the number of finished samples, and `CUT` is a detector without its decoding.
"""
LABELLED = ("labelled-x.npy", "labelled-y.npy")
"""Files with samples of train and their labels, if they may be needed to decide how a detector is read."""


@dataclass(frozen=True)
class TeacherFile:
    """A model file, which has not been loaded yet."""

    path: Path
    kind: str
    """The module in `edgekit.models.files` that opens it."""
    preprocess: list[dict[str, Any]]
    """Steps from a raw sample to the input of the file; empty if it takes raw samples."""
    sha256: str
    """SHA-256 of the file, in hex. If its weights are in another file, the digest covers both."""


def check_task(where: str, task: Task) -> None:
    """Raise ConfigError if model files cannot be used for the task. `where` is the config key for the message."""
    if task not in SUPPORTED_TASKS:
        raise ConfigError(
            f"task and {where} disagree: a model file supports {', '.join(SUPPORTED_TASKS)}, but task is {task}; name "
            "a builder instead"
        )


def open_file(path: Path, preprocess: Sequence[dict[str, Any]] = ()) -> TeacherFile:
    """Return the teacher at `path` without loading it.

    Raises ModelError if there is no model file of a known format, and ConfigError if a preprocess step is wrong.
    """
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
    """Run a model file on raw samples and return its logits, (n, classes) float32.

    Outputs that are probabilities or sigmoids are converted back to logits (`task_outputs.to_logits`). For regression,
    values (n, values) are returned, for detection (n, points, 4 + classes), and for segmentation
    (n, classes, rows, columns).

    Parameters
    ----------
    teacher : TeacherFile
        The model file.
    x : numpy.ndarray
        Raw samples (n, *sample), uint8 or float32; may be a memory map.
    classes : int
        Number of classes, or of values.
    timeout_s : float
        Longest time for all samples, in seconds.
    threads : int
        Number of threads; 0 means all cores.
    task : str
        The task, one of SUPPORTED_TASKS.
    tensors : sequence of dict
        The tensors that are joined in a sample, if the model has several inputs.
    progress : callable, optional
        Called from time to time with the number of finished samples and n.

    Raises
    ------
    ModelError
        The model cannot be opened or run, crashes, takes longer than `timeout_s`, does not fit the samples or the
        classes, or outputs NaN.
    ConfigError
        The preprocess steps do not fit the samples.
    ResourceError
        There is no disk space for a copy of the samples.
    """
    import numpy as np

    if not len(x):
        return np.empty((0, classes), dtype=np.float32)
    return _run(teacher, x, classes, timeout_s, threads, task, tensors, is_baseline=False, progress=progress)[0]


def logits_and_facts(
    teacher: TeacherFile,
    x: np.ndarray,
    *,
    classes: int,
    timeout_s: float,
    threads: int = 0,
    task: Task = "classification",
    tensors: Tensors = (),
    keypoints: int = 0,
    cut_file: Path | None = None,
    head: str | None = None,
    labelled: tuple[np.ndarray, np.ndarray] | None = None,
) -> tuple[np.ndarray, dict[str, Any]]:
    """Run a model file that is to be the baseline of a run, and return its logits and facts about the model.

    The facts are the fields of `models.store.Source`. In addition to what `logits` checks, the model must be usable on
    a device. `x` needs at least one sample. `keypoints` is the number of keypoints of each object in the data. If the
    model is a detector that decodes its boxes itself, the file without the decoding is written to `cut_file`, and the
    facts are those of this file. If its outputs can be read in several ways, the way is that with the name `head`, or
    that which is best on the `labelled` samples (x, y).
    """
    outputs, facts = _run(
        teacher,
        x,
        classes,
        timeout_s,
        threads,
        task,
        tensors,
        is_baseline=True,
        keypoints=keypoints,
        cut_file=cut_file,
        head=head,
        labelled=labelled,
    )
    return outputs, {"kind": teacher.kind, "file": teacher.path.name, **facts}


def _run(
    teacher: TeacherFile,
    x: np.ndarray,
    classes: int,
    timeout_s: float,
    threads: int,
    task: Task,
    tensors: Tensors,
    *,
    is_baseline: bool,
    keypoints: int = 0,
    progress: Callable[[int, int], None] | None = None,
    cut_file: Path | None = None,
    head: str | None = None,
    labelled: tuple[np.ndarray, np.ndarray] | None = None,
) -> tuple[np.ndarray, dict[str, Any]]:
    import numpy as np

    if tensors and teacher.preprocess:
        raise ConfigError(
            f"{teacher.path}: got {len(teacher.preprocess)} preprocess steps, but samples of several tensors cannot "
            "have any, because each step would change all tensors; write preprocess: [], and let the file scale its "
            "inputs"
        )
    try:
        steps.check(teacher.preprocess, x.shape[1:], str(x.dtype))
    except InputError as error:
        raise ConfigError(f"{teacher.path}: {error}") from None
    if detect.sha256(teacher.path, teacher.kind) != teacher.sha256:
        raise ModelError(f"{teacher.path}: has changed since the run started; start again")
    with contextlib.ExitStack() as stack:
        try:
            home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="edgekit-teacher-")))
            np.save(home / SAMPLES, x)
            for name, values in zip(LABELLED, labelled or (), strict=False):
                np.save(home / name, values)
        except OSError as error:
            raise ResourceError(
                f"{teacher.path}: cannot copy {len(x):,} samples to {tempfile.gettempdir()} "
                f"({error.strerror or error}); free some space there, or set TMPDIR to another folder"
            ) from error
        bar = stack.enter_context(step("running the model file", "samples", len(x)))

        def report_progress(count: int) -> None:
            bar.update(count)
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
            "is_baseline": is_baseline,
            "tensors": list(tensors),
            "head": head,
            "keypoints": keypoints,
        }
        facts = _run_in_process(teacher.path, job, home, timeout_s, report_progress)
        if cut_file is not None and (home / CUT).exists():
            shutil.copyfile(home / CUT, cut_file)
        return np.load(home / LOGITS, allow_pickle=False), facts


def _run_in_process(
    path: Path, job: dict[str, Any], home: Path, timeout_s: float, report_progress: Callable[[int], None]
) -> dict[str, Any]:
    """Run the worker process, which writes the logits to `home`, and return the facts about the model.

    Raises the error of the worker, or ModelError if its process dies or takes longer than `timeout_s`.
    """
    journal, count = subprocesses.FileTail(home / JOURNAL), 0

    def read_journal() -> None:
        nonlocal count
        if lines := journal.new():
            count = int(lines[-1])
            report_progress(count)

    # temporary files of a killed process are removed together with `home`
    environment = {**subprocesses.QUIET_ENVIRONMENT, "TMPDIR": str(home.absolute())}
    try:
        facts: dict[str, Any] = subprocesses.call(
            "edgekit.training.teachers.worker:write_logits", job, home, timeout_s, environment, should_stop=read_journal
        )
    except EdgekitError as error:
        kind = ModelError if type(error) is EdgekitError else type(error)  # errors of the runner are plain EdgekitError
        raise kind(f"{path}: {error}") from None
    except subprocesses.ChildDied as died:
        timeout = (
            f"not finished after {timeout_s:g} s, with {count:,} samples done; allow it more time, or more threads"
        )
        raise ModelError(f"{path}: {timeout if died.ended.timed_out else _describe_exit(died.ended)}") from None
    return facts


def _describe_exit(child_exit: subprocesses.ChildExit) -> str:
    if child_exit.was_killed:
        return "its process was killed (SIGKILL), as the system does when memory runs out; free some memory"
    if child_exit.signal:
        return f"crashed its interpreter ({child_exit.signal}); the file is broken, export it again"
    return f"cannot be run: {subprocesses.last_useful_line(child_exit.output)}"
