"""Execute a notebook that is no stage: no run has it, and nothing is sealed."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from edgekit.core.errors import StageError
from edgekit.runner.files import discard, make_folder, move
from edgekit.runner.native_stderr import quiet_native
from edgekit.workbook.plan import workbook_folder

FIELD = "08_field.ipynb"
"""Reads field reports; parameter `reports`, a folder."""
SEARCH = "00_search.ipynb"
"""Reads a study; parameter `study`, its file or folder."""
CELL_LIMIT_S = 600


def execute(notebook: str, parameters: Mapping[str, str], out: Path) -> None:
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
        move(working, out)
    finally:
        discard(working)
