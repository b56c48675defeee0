"""Execute one notebook through papermill: where its executed copy goes, and which error its failure becomes.

Nothing here trusts what papermill reports: a notebook is finished when every cell has run and its artifact is sealed.
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
from edgekit.workbook.attempts import ENDED, last_begun
from edgekit.workbook.plan import Plan, workbook_folder
from edgekit.workbook.stage import COMMAND, FORCE, declared_parameters


@dataclass(frozen=True)
class Step:
    """One notebook of the pipeline, with its parameters."""

    number: int
    stage: str
    parameters: dict[str, Any]
    cell_limit_s: int = 43_200
    of: int = len(STAGES)

    @property
    def notebook(self) -> str:
        """File name of the notebook."""
        return notebook_name(self.stage)

    @property
    def label(self) -> str:
        """What progress calls it: `[2/7] distill`."""
        return f"[{self.number}/{self.of}] {self.stage}"

    @property
    def source(self) -> Path:
        """The unmodified notebook."""
        return workbook_folder("notebooks") / self.notebook


def steps(plan: Plan, out: Path) -> list[Step]:
    """The notebooks of a plan, in order.

    Every parameter of a notebook's parameters cell is passed explicitly, so that an executed copy shows what it ran
    with. The other options reach the stage through `config` and `settings`.
    """
    common = {"config": str(plan.path), "out": str(out.resolve()), "settings": plan.settings}
    listed = []
    for number, stage in enumerate(plan.pipeline, 1):
        declared = declared_parameters(workbook_folder("notebooks") / notebook_name(stage))
        values = {name: value for name, value in plan.scalars(stage).items() if name in declared}
        listed.append(Step(number, stage, {**common, **values}, plan.run.cell_limit_s, len(plan.pipeline)))
    return listed


def execute(
    step: Step,
    folder: Path,
    sealed: Callable[[], Artifact],
    *,
    forced: bool = False,
) -> None:
    """Execute one notebook into `folder`/notebooks and leave its receipt; `sealed` gives the artifact or raises.

    The executed copy appears under its name only when every cell has run; a failed one is kept as
    NN_stage.failed.ipynb. Raises the error of the failing cell as the class that the cell raised.
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
            _papermill(step, working, failed, notebooks / f"{step.stage}.log", forced)
        except BudgetMissed as error:
            _receive(step, notebooks, sealed(), failed, error.exit_code, started)
            raise
        try:
            artifact = sealed()
        except EdgekitError as error:
            move_durably(working, failed)
            raise StageError(f"{step.notebook}: {error}; executed copy: {failed}") from None
        move_durably(working, target)
        _receive(step, notebooks, artifact, target, 0, started)
    except OSError as error:
        raise ResourceError(f"{step.notebook}: {error.strerror or error}: {error.filename or folder}") from None
    finally:
        remove_quietly(working)


def _receive(step: Step, notebooks: Path, artifact: Artifact, executed: Path, exit_code: int, started: float) -> None:
    state.write_receipt(notebooks, artifact, step.source, executed, exit_code, time.monotonic() - started)


def _papermill(step: Step, working: Path, failed: Path, log: Path, forced: bool) -> None:
    """Leave the executed notebook in `working`; where a cell did not come through, keep it as `failed` and raise."""
    import nbclient.exceptions
    import papermill
    from papermill.exceptions import PapermillExecutionError

    from edgekit.workbook.kernel import Kernel

    logging.getLogger("papermill").setLevel(logging.ERROR)
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # a task that Ctrl-C or SIGTERM left behind
    try:
        with (
            _kernel_environment(step.stage if forced else ""),
            quiet_native(log),
        ):  # they would write over what is shown
            papermill.execute_notebook(
                step.source,
                working,
                parameters=step.parameters,
                kernel_name="python3",
                kernel_manager_class=Kernel,
                cwd=Path.cwd(),
                execution_timeout=step.cell_limit_s,
                progress_bar=False,  # `watch` shows what goes on, within a cell too
            )
    except PapermillExecutionError as error:
        _keep(working, failed)
        raise _as_raised(step, error, failed) from None
    except nbclient.exceptions.CellTimeoutError:
        where, why = _where(step, working), f"not finished after {step.cell_limit_s} s, so its kernel was stopped"
        _keep(working, failed, why)
        raise StageError(f"{where}: {why}; raise cell_limit_s if it needs longer. Executed copy: {failed}") from None
    except (nbclient.exceptions.DeadKernelError, RuntimeError) as error:  # the latter where it never answered
        silent = "didn't respond" in str(error)
        how = "did not answer in time" if silent else "died (killed, out of memory, or a crash in native code)"
        where = _where(step, working)
        _keep(working, failed)
        raise StageError(
            f"{where}: the kernel {how}; what it had done is in {failed}, its last output in {log}"
        ) from None
    if unfinished := _unfinished(working):
        _keep(working, failed)
        raise StageError(f"{step.notebook}, {unfinished}; executed copy: {failed}")


def _cells(working: Path) -> list[dict[str, Any]]:
    try:
        return list(json.loads(working.read_text(encoding="utf-8"))["cells"])
    except (OSError, ValueError, KeyError):
        return []


def _where(step: Step, working: Path) -> str:
    """Which cell was running when its kernel went, counted from 1 in the executed copy: the last that was begun."""
    begun = last_begun(working)
    return f"{step.notebook}, cell {begun}" if begun else step.notebook


def _unfinished(working: Path) -> str:
    """Which cell ended the notebook early without an error: papermill calls `sys.exit()` a success."""
    for number, cell in enumerate(_cells(working), 1):
        if cell["cell_type"] != "code":
            continue
        if any(output.get("ename") == "SystemExit" for output in cell["outputs"]):
            return f"cell {number}: called sys.exit(), so the cells after it never ran"
        if cell["execution_count"] is None and "".join(cell["source"]).strip():
            return f"cell {number}: was never run"
    return ""


def _as_raised(step: Step, error: Any, failed: Path) -> EdgekitError:
    """The failing cell's own error: its class decides the exit code, its message is the message."""
    where = f"{step.notebook}, cell {error.cell_index + 1}"
    if raised := errors.error_from_name(error.ename, f"{where}: {error.evalue}\nexecuted copy: {failed}"):
        return raised
    if error.ename == "MemoryError" or any(f"[Errno {number}]" in error.evalue for number in RESOURCE_ERRNOS):
        return ResourceError(f"{where}: {error.evalue or 'out of memory'}\nexecuted copy: {failed}")
    return StageError(f"{where}: {error.ename}: {error.evalue}\nfull traceback in {failed}")


def _keep(working: Path, kept: Path, ended: str = "") -> None:
    """As `kept`; with how the run ended it, for the cell says only that it was interrupted."""
    if not working.is_file():
        return
    if ended:
        with suppress(ValueError, KeyError):  # half written
            notebook = json.loads(working.read_text(encoding="utf-8"))
            notebook["metadata"][ENDED] = ended
            write_atomically(working, json.dumps(notebook, indent=1).encode())
    move_durably(working, kept)


@contextmanager
def _kernel_environment(forced: str) -> Iterator[None]:
    """Kernels find this environment's own commands and know who started them; TensorFlow keeps quiet, and OpenMP's
    threads sleep while they wait."""
    before = dict(os.environ)
    os.environ.update(subprocesses.openmp_wait())
    os.environ[COMMAND] = str(os.getpid())
    os.environ[FORCE] = forced
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), before.get("PATH", "")])
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


FIELD = "08_field.ipynb"
"""Reads field reports; parameter `reports`, a folder."""
SEARCH = "00_search.ipynb"
"""Reads a study; parameter `study`, its file or folder."""
CELL_LIMIT_S = 600


def execute_side_notebook(notebook: str, parameters: Mapping[str, str], out: Path) -> None:
    """Write the executed copy to `out`; StageError where a cell fails, and then `out` is not touched."""
    import papermill
    from papermill.exceptions import PapermillExecutionError

    from edgekit.workbook.kernel import Kernel

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
                kernel_manager_class=Kernel,
                execution_timeout=CELL_LIMIT_S,
                progress_bar=False,
            )
    except PapermillExecutionError as error:
        raise StageError(f"{notebook}, cell {error.cell_index + 1}: {error.ename}: {error.evalue}") from None
    else:
        move_durably(working, out)
    finally:
        remove_quietly(working)
