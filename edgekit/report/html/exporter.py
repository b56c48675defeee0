"""A notebook as HTML with none of the notebook's own HTML in it: what was typed or printed as such is shown as text.

Markdown is rendered with its tags escaped; of what a cell put out, text, Markdown and pictures are kept, and of their
metadata a picture's size. So nothing in a notebook brings a script, a frame, or an address that a browser fetches.
"""

from __future__ import annotations

import base64
import html
import io
import re
from collections.abc import Mapping
from typing import Any

from jinja2 import pass_context
from jinja2.runtime import Context
from nbconvert import HTMLExporter
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
from nbformat import NotebookNode, from_dict

SHOWN = ("text/markdown", "image/svg+xml", "text/latex", "image/png", "image/jpeg", "text/plain")
"""Kinds of output, as the first of them that is there; an SVG stands in a data URI, where no script in it runs."""
INLINE = ("image/png", "image/jpeg", "image/gif", "image/webp")
"""Kinds of pictures in Markdown, from its attachments or typed as a data URI."""
_TO_DOCS = re.compile(r"^\.\./(docs/[\w/.-]+\.md)(?:#|$)")
"""As the notebooks of the workbook write it: beside a report there are no such files."""
_TO_NOTEBOOK = re.compile(r"^(?:\./)?(\d\d_[a-z]+)\.ipynb(?=#|$)")


class Exporter(HTMLExporter):
    """nbconvert's, for notebooks that are not to be trusted."""

    @pass_context
    def markdown2html(self, context: Context, source: str) -> str:
        """Of a Markdown cell or of an output in Markdown; only the cell has formulas."""
        cell = context["cell"]
        renderer = Renderer(cell.get("attachments", {}), formulas=cell.cell_type == "markdown")
        return str(MarkdownWithMath(renderer=renderer).render(source))

    def from_notebook_node(self, nb: NotebookNode, resources: Any = None, **options: Any) -> Any:
        """As the base class; the outputs of `nb` are cut down to what is shown."""
        for cell in nb.cells:
            if cell.cell_type == "code":
                cell.outputs = [_shown(output) for output in cell.outputs]
        return super().from_notebook_node(nb, resources, **options)


class Renderer(IPythonRenderer):
    """Markdown to HTML; links between notebooks lead to their pages, formulas become pictures."""

    def __init__(self, attachments: Mapping[str, Mapping[str, str]], formulas: bool) -> None:
        pictures = {name: {kind: file[kind] for kind in INLINE if kind in file} for name, file in attachments.items()}
        kept = {name: file for name, file in pictures.items() if file}
        super().__init__(escape=True, allow_harmful_protocols=False, attachments=kept)
        self.formulas = formulas

    def text(self, text: str) -> str:
        """An entity stays the letter that it stands for."""
        return html.escape(html.unescape(text))

    def link(self, text: str, url: str, title: str | None = None) -> str:
        """To the page of a notebook, where the notebook itself was meant; a page of the project's docs by its name."""
        if documentation := _TO_DOCS.match(url):
            return f"{text} (<code>{html.escape(documentation[1])}</code>)"
        return str(super().link(text, _TO_NOTEBOOK.sub(r"\1.html", url), title))

    def image(self, text: str, url: str, title: str | None = None) -> str:
        """A picture that the notebook carries; of any other a link to it."""
        carried = url.lower().startswith(tuple(f"data:{kind};" for kind in INLINE))
        if carried or url.removeprefix("attachment:") in self.attachments:
            return str(super().image(text, url, title))
        return self.link(text or html.escape(url), url, title)

    def block_math(self, body: str) -> str:
        """A picture, for the page has no scripts."""
        return _formula(body) if self.formulas else str(super().block_math(body))

    def block_mermaidjs(self, code: str) -> str:
        """As any other code: to draw it takes a script."""
        return str(self.block_code(code))


def _formula(typed: str) -> str:
    """As a picture; what matplotlib does not read stays as it was typed."""
    from matplotlib.mathtext import math_to_image

    drawn = io.BytesIO()
    try:
        math_to_image(f"${typed}$", drawn, format="svg")
    except ValueError:
        return f"<code>{html.escape(typed)}</code>"
    source = "data:image/svg+xml;base64," + base64.b64encode(drawn.getvalue()).decode()
    return f'<img class="formula" src="{source}" alt="{html.escape(typed)}">'


def _shown(output: NotebookNode) -> NotebookNode:
    """A stream or an error as it is; of data the kinds that are shown, or in words which they were."""
    if "data" not in output:
        return output
    data = {kind: output.data[kind] for kind in SHOWN if kind in output.data}
    notice = {"text/plain": f"not shown on this page: {', '.join(output.data) or 'nothing'}"}
    sizes = {kind: _size(output.get("metadata", {}).get(kind)) for kind in data}
    kept = {key: output[key] for key in ("output_type", "execution_count") if key in output}
    return from_dict({**kept, "data": data or notice, "metadata": sizes})


def _size(metadata: Any) -> dict[str, float]:
    """Width and height in CSS pixels, where they are numbers: nbconvert writes them without quotes."""
    found = metadata if isinstance(metadata, dict) else {}
    return {side: found[side] for side in ("width", "height") if isinstance(found.get(side), (int, float))}
