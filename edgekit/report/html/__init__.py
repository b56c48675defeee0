"""`report.html`: one page about a finished run, with nothing in it that comes from elsewhere.

Drawn from `result.json`, the sealed artifacts and the executed notebooks, whose copies in HTML lie beside it in
`report/`. It carries a digest of its sources, so that an up-to-date page is not drawn again.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from edgekit.core.config import STAGES
from edgekit.core.run_folder import notebook_name
from edgekit.report.html.sign import digest_with_code, sign_of
from edgekit.report.result import RESULT
from edgekit.report.run import result_of
from edgekit.runner.files import make_folder, write_atomically

PAGE = "report.html"
BESIDE = "report"
"""Folder of the executed notebooks in HTML."""
END = "</html>\n"


def write(folder: Path) -> Path:
    """Draw the page of the finished run in `folder` if what is there is not current; the caller holds the run's lock.

    DataError where the run has no verdict yet.
    """
    result = result_of(folder)
    if is_drawn(folder):
        return folder / PAGE
    from edgekit.report.html import notebooks, page
    from edgekit.report.html.render import render

    sign = sources_digest(folder)
    make_folder(folder / BESIDE)
    links = notebooks.write(executed(folder), folder / BESIDE)
    text = render("page.html.j2", sign=sign, **page.build_context(folder, result, links))
    write_atomically(folder / PAGE, text.encode())
    return folder / PAGE


def draw(folder: Path, say: Callable[[str], None]) -> bool:
    """`write` at the end of a run; an error is printed only, because the verdict stands without a page."""
    try:
        write(folder)
        return True
    except Exception as error:
        say(f"{PAGE} could not be drawn ({type(error).__name__}: {error}); the verdict stands: edgekit report {folder}")
        return False


def is_drawn(folder: Path) -> bool:
    """True where the page is whole and says what the run's files say now."""
    try:
        text = (folder / PAGE).read_text(encoding="utf-8")
        there = all(path.is_file() for path in files(folder))
        return there and text.endswith(END) and sign_of(text) == sources_digest(folder)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def executed(folder: Path) -> list[Path]:
    """The executed notebooks that belong to the result, in order; that of a missed budget ends in its last check."""
    stages = json.loads((folder / RESULT).read_text(encoding="utf-8"))["stages"]
    found = []
    for stage in STAGES:
        path = folder / "notebooks" / notebook_name(stage)
        kept = [one for one in (path.with_suffix(".failed.ipynb"), path) if one.is_file()]
        found += kept[:1] if stage in stages else []
    return found


def files(folder: Path) -> list[Path]:
    """The page's own files, drawn or not: those of the notebooks, and the page last."""
    beside = [folder / BESIDE / f"{path.name.split('.')[0]}.html" for path in executed(folder)]
    return [*beside, folder / PAGE]


def sources_digest(folder: Path) -> str:
    """Digest of all that the page is drawn from."""
    return digest_with_code([folder / RESULT, *executed(folder)])
