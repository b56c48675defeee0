"""Config → papermill, in order: executes the seven notebooks of a run and says how each ended."""

from __future__ import annotations

import errno
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from edgekit.artifact import RECORD
from edgekit.config import STAGES
from edgekit.errors import EdgekitError, ResourceError, StageError, by_name
from edgekit.plan import Plan, workbook_folder
from edgekit.runner import errors as runner_errors
from edgekit.workbook import stage_folder

NO_RESOURCES = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EMFILE, errno.ENOMEM)


@dataclass(frozen=True)
class Step:
    """One notebook of the walk, with the parameters it is given."""

    number: int
    stage: str
    parameters: dict[str, Any]

    @property
    def notebook(self) -> str:
        """File name of the notebook."""
        return f"{self.number:02d}_{self.stage}.ipynb"


def steps(plan: Plan, out: Path) -> list[Step]:
    """The walk of a plan; every parameter is explicit, so an executed notebook says what it ran with."""
    common = {"config": str(plan.path), "out": str(out.resolve()), "settings": plan.settings}
    return [Step(number, stage, {**common, **plan.scalars(stage)}) for number, stage in enumerate(STAGES, 1)]


def execute(step: Step, folder: Path, *, progress: bool = True) -> None:
    """Execute one notebook into `folder`/notebooks.

    The executed copy appears under its name only when every cell has run; a failed one is kept as
    NN_stage.failed.ipynb. Raises the error of the failing cell as the class that the cell raised.
    """
    import nbclient.exceptions
    import papermill
    from papermill.exceptions import PapermillExecutionError

    logging.getLogger("papermill").setLevel(logging.ERROR)
    target = folder / "notebooks" / step.notebook
    failed = target.with_suffix(".failed.ipynb")
    working = target.with_name(f".{step.stage}.partial.ipynb")
    target.parent.mkdir(parents=True, exist_ok=True)
    failed.unlink(missing_ok=True)
    label = f"{step.number}/{len(STAGES)} {step.notebook:<19} {step.stage:<9}"
    log = target.with_name(f"{step.stage}.log")
    try:
        with _kernel_environment(), _native_stderr_into(log) as terminal:
            papermill.execute_notebook(
                workbook_folder("notebooks") / step.notebook,
                working,
                parameters=step.parameters,
                kernel_name="python3",
                cwd=Path.cwd(),
                progress_bar={"desc": label, "disable": not progress, "dynamic_ncols": True, "file": terminal},
            )
    except PapermillExecutionError as error:
        _keep(working, failed)
        raise _as_raised(step, error, failed) from None
    except (nbclient.exceptions.DeadKernelError, RuntimeError):  # the latter where it dies before it answers
        _keep(working, failed)
        raise StageError(
            f"{step.notebook}: the kernel died (killed, out of memory, or a crash in native code); "
            f"what it had done is in {failed}, its last words in {log}"
        ) from None
    except OSError as error:
        raise ResourceError(f"{step.notebook}: {error.strerror or error}: {error.filename or folder}") from None
    else:
        _keep(working, target if _sealed(step, folder) else failed)
    finally:
        working.unlink(missing_ok=True)
    if not _sealed(step, folder):
        raise StageError(f"{step.notebook}: ran to its end but sealed no artifact; executed copy: {failed}")


def _as_raised(step: Step, error: Any, failed: Path) -> EdgekitError:
    """The failing cell's own error: its class decides the exit code, its message is the message."""
    kind = by_name(error.ename)
    where = f"{step.notebook}, cell {error.cell_index + 1}"
    on_the_device = getattr(runner_errors, error.ename, None)
    if on_the_device:
        raised = EdgekitError(f"{where}: {error.evalue}\nexecuted copy: {failed}")
        raised.exit_code = on_the_device.exit_code
        return raised
    if error.ename == "MemoryError" or any(f"[Errno {number}]" in error.evalue for number in NO_RESOURCES):
        return ResourceError(f"{where}: {error.evalue or 'out of memory'}\nexecuted copy: {failed}")
    if kind is None:
        return StageError(f"{where}: {error.ename}: {error.evalue}\nfull traceback in {failed}")
    return kind(f"{where}: {error.evalue}\nexecuted copy: {failed}")


def _keep(working: Path, kept: Path) -> None:
    if working.is_file():
        os.replace(working, kept)


def _sealed(step: Step, folder: Path) -> bool:
    """papermill can report success for a notebook that sealed nothing; the artifact decides."""
    return (stage_folder(folder, step.stage) / RECORD).is_file()


@contextmanager
def _native_stderr_into(log: Path) -> Iterator[TextIO]:
    """Native libraries in the kernel write to the terminal over the progress bar; give them a file instead.

    Yields the real terminal, for the progress bar.
    """
    sys.stderr.flush()
    terminal = os.dup(2)
    try:
        with open(log, "wb") as sink:
            os.dup2(sink.fileno(), 2)
        with os.fdopen(os.dup(terminal), "w", encoding="utf-8") as stream:
            yield stream
    finally:
        os.dup2(terminal, 2)
        os.close(terminal)


@contextmanager
def _kernel_environment() -> Iterator[None]:
    """Kernels find this environment's own commands, and TensorFlow keeps quiet."""
    before = dict(os.environ)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), before.get("PATH", "")])
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
