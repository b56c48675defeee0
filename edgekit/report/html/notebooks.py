"""Write the executed notebooks as pages beside the report: text, code, tables and images, without scripts."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from edgekit.core.hashing import digest, sha256_file
from edgekit.report.html.source_digest import stored_digest
from edgekit.report.html.templates import TEMPLATES, render
from edgekit.runner.files import write_atomically

PLACEHOLDER_ALT_TEXT = "No description has been provided for this image"
"""What nbconvert writes as the description of every image."""
_TITLE = re.compile(r"<h1[^>]*>(.*?)(?:<a |</h1>)", re.DOTALL)


@dataclass(frozen=True)
class NotebookPage:
    """A notebook's page beside the report, and the executed notebook itself. Both paths are relative to the report."""

    stage: str
    page: str
    notebook: str


def write_pages(notebooks: Sequence[Path], folder: Path) -> list[NotebookPage]:
    """Write a page for each notebook, unless it is current, and remove the pages of other notebooks."""
    links = []
    for path in notebooks:
        name = path.name.split(".")[0]
        page = folder / f"{name}.html"
        sign = digest([sha256_file(path), *(sha256_file(part) for part in _code_files())])
        if not _is_page_current(page, sign):
            write_atomically(page, _render_notebook(path, name, sign).encode())
        links.append(NotebookPage(name.partition("_")[2], f"{folder.name}/{page.name}", f"notebooks/{path.name}"))
    current = {Path(link.page).name for link in links}
    for page in folder.glob("*.html"):
        if page.name not in current:
            page.unlink()
    return links


def _code_files() -> list[Path]:
    names = ("exporter.py", "templates.py", "source_digest.py", "notebook.html.j2", "page.css")
    return [Path(__file__), *(TEMPLATES / name for name in names)]


def _is_page_current(page: Path, sign: str) -> bool:
    try:
        text = page.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return False
    return stored_digest(text) == sign


def _render_notebook(path: Path, name: str, sign: str) -> str:
    from pygments.formatters import HtmlFormatter

    from edgekit.report.html.exporter import NotebookExporter

    exporter = NotebookExporter(template_name="basic", exclude_input_prompt=True, exclude_output_prompt=True)
    exporter.log = logging.getLogger(f"{__name__}.quiet")
    exporter.log.setLevel(logging.ERROR)  # otherwise nbconvert warns about each image without a description
    body, _ = exporter.from_filename(str(path))
    body = body.replace(PLACEHOLDER_ALT_TEXT, f"Figure of {name}, described by the text and the tables around it")
    title = _TITLE.search(body)
    styles = {shade: HtmlFormatter(style=style) for shade, style in (("light", "default"), ("dark", "github-dark"))}
    return render(
        "notebook.html.j2",
        sign=sign,
        title=Markup(title[1]).striptags() if title else name,
        body=Markup(body),
        code={shade: Markup(style.get_style_defs(".highlight")) for shade, style in styles.items()},
    )
