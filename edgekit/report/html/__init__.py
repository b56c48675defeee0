"""`report.html`: one page about a finished run. The page loads nothing from elsewhere.

It is built from `result.json`, the sealed artifacts and the executed notebooks. HTML copies of the notebooks lie beside
the page in `report/`. The page carries a digest of its sources, so that a current page is not built again.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from edgekit.core.config import STAGES
from edgekit.core.run_folder import notebook_name
from edgekit.report.finished_run import read_result
from edgekit.report.html.source_digest import digest_with_code, stored_digest
from edgekit.report.result import RESULT
from edgekit.runner.files import make_folder, write_atomically

PAGE = "report.html"
NOTEBOOK_FOLDER = "report"
"""The folder of the executed notebooks in HTML."""
END = "</html>\n"


def write_page(folder: Path) -> Path:
    """Write the page of the finished run in `folder`, unless it is current. The caller holds the lock of the run.

    Raises
    ------
    DataError
        The run has no verdict yet.
    """
    result = read_result(folder)
    if is_page_current(folder):
        return folder / PAGE
    from edgekit.report.html import notebooks, page
    from edgekit.report.html.templates import render

    sign = sources_digest(folder)
    make_folder(folder / NOTEBOOK_FOLDER)
    links = notebooks.write_pages(executed_notebooks(folder), folder / NOTEBOOK_FOLDER)
    text = render("page.html.j2", sign=sign, **page.build_context(folder, result, links))
    write_atomically(folder / PAGE, text.encode())
    return folder / PAGE


def try_write_page(folder: Path, print_line: Callable[[str], None]) -> bool:
    """Like `write_page`, but pass an error to `print_line` and do not raise it, because the verdict is valid anyway."""
    try:
        write_page(folder)
        return True
    except Exception as error:
        print_line(
            f"{PAGE} could not be written ({type(error).__name__}: {error}). The verdict is valid; try again with: "
            f"edgekit report {folder}"
        )
        return False


def is_page_current(folder: Path) -> bool:
    """Return whether the page is complete and belongs to the current files of the run."""
    try:
        text = (folder / PAGE).read_text(encoding="utf-8")
        all_exist = all(path.is_file() for path in page_files(folder))
        return all_exist and text.endswith(END) and stored_digest(text) == sources_digest(folder)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def executed_notebooks(folder: Path) -> list[Path]:
    """Return the executed notebooks of the result, in order.

    If the budget was missed, the last one ends with a failed check.
    """
    stages = json.loads((folder / RESULT).read_text(encoding="utf-8"))["stages"]
    notebooks = []
    for stage in STAGES:
        path = folder / "notebooks" / notebook_name(stage)
        candidates = [one for one in (path.with_suffix(".failed.ipynb"), path) if one.is_file()]
        notebooks += candidates[:1] if stage in stages else []
    return notebooks


def page_files(folder: Path) -> list[Path]:
    """Return the files of the page, whether they exist or not: first those of the notebooks, last the page itself."""
    notebook_pages = [
        folder / NOTEBOOK_FOLDER / f"{path.name.split('.')[0]}.html" for path in executed_notebooks(folder)
    ]
    return [*notebook_pages, folder / PAGE]


def sources_digest(folder: Path) -> str:
    """Return the digest of everything that the page is built from."""
    return digest_with_code([folder / RESULT, *executed_notebooks(folder)])
