"""The executed notebooks as pages beside the report: text, code, tables and pictures, without scripts."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from edgekit.core.hashing import digest, sha256_file
from edgekit.report.html.render import TEMPLATES, render
from edgekit.report.html.sign import sign_of
from edgekit.runner.files import write_atomically

WORDLESS = "No description has been provided for this image"
"""What nbconvert says of every picture."""
_TITLE = re.compile(r"<h1[^>]*>(.*?)(?:<a |</h1>)", re.DOTALL)


@dataclass(frozen=True)
class Link:
    """A notebook's page beside the report, `page`, and the executed notebook itself; both relative to the report."""

    stage: str
    page: str
    notebook: str


def write(executed: Sequence[Path], beside: Path) -> list[Link]:
    """A page for each notebook in `beside`, unless what is there is still true; pages of others are removed."""
    links = []
    for path in executed:
        name = path.name.split(".")[0]
        page = beside / f"{name}.html"
        sign = digest([sha256_file(path), *(sha256_file(part) for part in _code())])
        if not _is_drawn(page, sign):
            write_atomically(page, _page(path, name, sign).encode())
        links.append(Link(name.partition("_")[2], f"{beside.name}/{page.name}", f"notebooks/{path.name}"))
    current = {Path(link.page).name for link in links}
    for page in beside.glob("*.html"):
        if page.name not in current:
            page.unlink()
    return links


def _code() -> list[Path]:
    names = ("exporter.py", "render.py", "sign.py", "notebook.html.j2", "page.css")
    return [Path(__file__), *(TEMPLATES / name for name in names)]


def _is_drawn(page: Path, sign: str) -> bool:
    try:
        text = page.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return False
    return sign_of(text) == sign


def _page(path: Path, name: str, sign: str) -> str:
    from pygments.formatters import HtmlFormatter

    from edgekit.report.html.exporter import Exporter

    exporter = Exporter(template_name="basic", exclude_input_prompt=True, exclude_output_prompt=True)
    exporter.log = logging.getLogger(f"{__name__}.quiet")
    exporter.log.setLevel(logging.ERROR)  # or it warns on stderr about each picture without alt text
    body, _ = exporter.from_filename(str(path))
    body = body.replace(WORDLESS, f"Figure of {name}, described by the text and the tables around it")
    title = _TITLE.search(body)
    styles = {shade: HtmlFormatter(style=style) for shade, style in (("light", "default"), ("dark", "github-dark"))}
    return render(
        "notebook.html.j2",
        sign=sign,
        title=Markup(title[1]).striptags() if title else name,
        body=Markup(body),
        code={shade: Markup(style.get_style_defs(".highlight")) for shade, style in styles.items()},
    )
