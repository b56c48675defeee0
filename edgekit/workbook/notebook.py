"""Execute one notebook with papermill, store its executed copy, and raise the error of a failing cell.

A notebook counts as finished only if every cell has run and its artifact is sealed, whatever papermill reports.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgekit.core import errors, subprocesses
from edgekit.core.artifacts import Artifact
from edgekit.core.config import STAGES
from edgekit.core.errors import RESOURCE_ERRNOS, BudgetMissed, EdgekitError, ResourceError, StageError
from edgekit.core.run_folder import failed_notebook, notebook_name, working_notebook
from edgekit.runner.files import make_folder, move_durably, remove_quietly, write_atomically
from edgekit.runner.native_stderr import quiet_native
from edgekit.workbook import state
from edgekit.workbook.attempts import END_REASON_KEY, last_started_cell
from edgekit.workbook.plan import Plan, workbook_folder
from edgekit.workbook.stage import FORCE_VARIABLE, RUN_PROCESS_VARIABLE, declared_parameters


@dataclass(frozen=True)
class NotebookStep:
    """One notebook of the pipeline and its parameters."""

    number: int
    stage: str
    parameters: dict[str, Any]
    cell_limit_s: int = 43_200
    total: int = len(STAGES)

    @property
    def notebook(self) -> str:
        """File name of the notebook."""
        return notebook_name(self.stage)

    @property
    def label(self) -> str:
        """The name that progress lines show: `[2/7] distill`."""
        return f"[{self.number}/{self.total}] {self.stage}"

    @property
    def source(self) -> Path:
        """Path of the unmodified notebook."""
        return workbook_folder("notebooks") / self.notebook


def steps(plan: Plan, out: Path) -> list[NotebookStep]:
    """Return the notebooks of a plan in order.

    Every parameter in a notebook's parameters cell is passed explicitly, so that the executed copy shows the values
    used. The other options reach the stage through `config` and `settings`.
    """
    common_parameters = {"config": str(plan.path), "out": str(out.resolve()), "settings": plan.settings}
    notebook_steps = []
    for number, stage in enumerate(plan.pipeline, 1):
        declared_names = declared_parameters(workbook_folder("notebooks") / notebook_name(stage))
        values = {name: value for name, value in plan.scalars(stage).items() if name in declared_names}
        notebook_steps.append(
            NotebookStep(number, stage, {**common_parameters, **values}, plan.run.cell_limit_s, len(plan.pipeline))
        )
    return notebook_steps


def execute(
    step: NotebookStep,
    folder: Path,
    sealed: Callable[[], Artifact],
    *,
    forced: bool = False,
) -> None:
    """Execute one notebook into `folder`/notebooks, and write its receipt, the record that it completed.

    `sealed` returns the stage's artifact or raises an error. The executed copy gets its final name only after every
    cell has run. The copy of a failed attempt is kept as NN_stage.failed.ipynb.

    Raises
    ------
    EdgekitError
        The error of the failing cell, with the class that the cell raised.
    """
    notebooks = folder / "notebooks"
    target = notebooks / step.notebook
    failed, working = failed_notebook(folder, step.stage), working_notebook(folder, step.stage)
    started = time.monotonic()
    try:
        make_folder(notebooks)
        state.remove_receipt(notebooks, step.stage)
        failed.unlink(missing_ok=True)
        try:
            _execute_cells(step, working, failed, notebooks / f"{step.stage}.log", forced)
        except BudgetMissed as error:
            _write_receipt(step, notebooks, sealed(), failed, error.exit_code, started)
            raise
        try:
            artifact = sealed()
        except EdgekitError as error:
            move_durably(working, failed)
            raise StageError(f"{step.notebook}: {error}; executed copy: {failed}") from None
        move_durably(working, target)
        _write_receipt(step, notebooks, artifact, target, 0, started)
    except OSError as error:
        raise ResourceError(f"{step.notebook}: {error.strerror or error}: {error.filename or folder}") from None
    finally:
        remove_quietly(working)


def _write_receipt(
    step: NotebookStep, notebooks: Path, artifact: Artifact, executed: Path, exit_code: int, started: float
) -> None:
    state.write_receipt(notebooks, artifact, step.source, executed, exit_code, time.monotonic() - started)


def _execute_cells(step: NotebookStep, working: Path, failed: Path, log: Path, forced: bool) -> None:
    """Write the executed notebook to `working`. If a cell fails, keep the copy as `failed` and raise."""
    import nbclient.exceptions
    import papermill
    from papermill.exceptions import PapermillExecutionError

    from edgekit.workbook.kernel import ProcessGroupKernelManager

    logging.getLogger("papermill").setLevel(logging.ERROR)
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # it would report the task that Ctrl-C or SIGTERM leaves
    try:
        with (
            _kernel_environment(step.stage if forced else ""),
            quiet_native(log),  # otherwise native libraries would write over the progress line
        ):
            papermill.execute_notebook(
                step.source,
                working,
                parameters=step.parameters,
                kernel_name="python3",
                kernel_manager_class=ProcessGroupKernelManager,
                cwd=Path.cwd(),
                execution_timeout=step.cell_limit_s,
                shutdown_kernel="immediate",  # the artifact is sealed, and TensorFlow takes seconds to end
                progress_bar=False,  # the run's `ProgressDisplay` shows progress instead, even within a cell
            )
    except PapermillExecutionError as error:
        _keep_failed_copy(working, failed)
        raise _error_of_cell(step, error, failed) from None
    except nbclient.exceptions.CellTimeoutError:
        cell, reason = _last_cell(step, working), f"not finished after {step.cell_limit_s} s, so its kernel was stopped"
        _keep_failed_copy(working, failed, reason)
        raise StageError(
            f"{cell}: {reason}; raise cell_limit_s if the cell needs longer. Executed copy: {failed}"
        ) from None
    except (nbclient.exceptions.DeadKernelError, RuntimeError) as error:  # RuntimeError: the kernel never answered
        did_not_respond = "didn't respond" in str(error)
        what_happened = (
            "did not answer in time" if did_not_respond else "died (killed, out of memory, or a crash in native code)"
        )
        cell = _last_cell(step, working)
        _keep_failed_copy(working, failed)
        raise StageError(
            f"{cell}: the kernel {what_happened}; its executed cells are in {failed}, its last output in {log}"
        ) from None
    if unfinished := _unfinished_cell(working):
        _keep_failed_copy(working, failed)
        raise StageError(f"{step.notebook}, {unfinished}; executed copy: {failed}")


def _cells(working: Path) -> list[dict[str, Any]]:
    try:
        return list(json.loads(working.read_text(encoding="utf-8"))["cells"])
    except (OSError, ValueError, KeyError):
        return []


def _last_cell(step: NotebookStep, working: Path) -> str:
    """Return the notebook and the cell that was running when its kernel ended, counted from 1."""
    cell = last_started_cell(working)
    return f"{step.notebook}, cell {cell}" if cell else step.notebook


def _unfinished_cell(working: Path) -> str:
    """Return a text about the cell that ended the notebook early without an error, or an empty text.

    This is necessary because papermill treats `sys.exit()` as success.
    """
    for number, cell in enumerate(_cells(working), 1):
        if cell["cell_type"] != "code":
            continue
        if any(output.get("ename") == "SystemExit" for output in cell["outputs"]):
            return f"cell {number}: called sys.exit(), so the cells after it never ran"
        if cell["execution_count"] is None and "".join(cell["source"]).strip():
            return f"cell {number}: was never run"
    return ""


def _error_of_cell(step: NotebookStep, error: Any, failed: Path) -> EdgekitError:
    """Return the error of the failing cell. The error's class determines the exit code."""
    cell = f"{step.notebook}, cell {error.cell_index + 1}"
    if raised := errors.error_from_name(error.ename, f"{cell}: {error.evalue}\nexecuted copy: {failed}"):
        return raised
    if error.ename == "MemoryError" or any(f"[Errno {number}]" in error.evalue for number in RESOURCE_ERRNOS):
        return ResourceError(f"{cell}: {error.evalue or 'out of memory'}\nexecuted copy: {failed}")
    return StageError(f"{cell}: {error.ename}: {error.evalue}\nfull traceback in {failed}")


def _keep_failed_copy(working: Path, failed: Path, end_reason: str = "") -> None:
    """Keep the executed copy as `failed`.

    `end_reason` says why the run stopped the notebook, because the cell itself records only that it was interrupted.
    """
    if not working.is_file():
        return
    if end_reason:
        with suppress(ValueError, KeyError):  # the file is incomplete
            notebook = json.loads(working.read_text(encoding="utf-8"))
            notebook["metadata"][END_REASON_KEY] = end_reason
            write_atomically(working, json.dumps(notebook, indent=1).encode())
    move_durably(working, failed)


@contextmanager
def _kernel_environment(forced: str) -> Iterator[None]:
    """Set the environment variables of kernels that are started in the block.

    The kernels find the commands of this Python environment, and know which process started them. TensorFlow logs less
    in them, and OpenMP threads sleep while they wait.
    """
    previous = dict(os.environ)
    os.environ.update(subprocesses.openmp_wait())
    os.environ[RUN_PROCESS_VARIABLE] = str(os.getpid())
    os.environ[FORCE_VARIABLE] = forced
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), previous.get("PATH", "")])
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(previous)


FIELD_NOTEBOOK = "08_field.ipynb"
"""The notebook that reads field reports. Its parameter `reports` is a folder."""
SEARCH_NOTEBOOK = "00_search.ipynb"
"""The notebook that reads a study. Its parameter `study` is the study's file or folder."""
SIDE_CELL_LIMIT_S = 600


def execute_side_notebook(notebook: str, parameters: Mapping[str, str], out: Path) -> None:
    """Execute a notebook that is not a stage and write the executed copy to `out`.

    Raises
    ------
    StageError
        A cell failed. `out` is then left unchanged.
    """
    import papermill
    from papermill.exceptions import PapermillExecutionError

    from edgekit.workbook.kernel import ProcessGroupKernelManager

    logging.getLogger("papermill").setLevel(logging.ERROR)
    make_folder(out.parent)
    working = out.with_name(f".{out.stem}.partial.ipynb")
    try:
        with quiet_native():
            papermill.execute_notebook(
                workbook_folder("notebooks") / notebook,
                working,
                parameters=dict(parameters),
                kernel_name="python3",
                kernel_manager_class=ProcessGroupKernelManager,
                execution_timeout=SIDE_CELL_LIMIT_S,
                progress_bar=False,
            )
    except PapermillExecutionError as error:
        raise StageError(f"{notebook}, cell {error.cell_index + 1}: {error.ename}: {error.evalue}") from None
    else:
        move_durably(working, out)
    finally:
        remove_quietly(working)
