"""Convert a notebook to HTML. HTML inside the notebook is not used, but shown as text.

Markdown is rendered with its HTML tags escaped. From a cell's outputs, only text, Markdown and images are kept; from
the metadata of an output, only the size of an image. So nothing in a notebook can add a script, a frame, or an address
that a browser loads.
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

OUTPUT_KINDS = ("text/markdown", "image/svg+xml", "text/latex", "image/png", "image/jpeg", "text/plain")
"""The kinds of output that can be shown. If an output exists in several kinds, the first of them in this order is
shown. An SVG becomes a data URI, so its scripts cannot run."""
IMAGE_KINDS = ("image/png", "image/jpeg", "image/gif", "image/webp")
"""The kinds of images that Markdown may show. They are attachments of a cell or written as data URIs."""
_TO_DOCS = re.compile(r"^\.\./(docs/[\w/.-]+\.md)(?:#|$)")
"""Links from the notebooks to the documentation, which does not exist beside a report."""
_TO_NOTEBOOK = re.compile(r"^(?:\./)?(\d\d_[a-z]+)\.ipynb(?=#|$)")


class NotebookExporter(HTMLExporter):
    """nbconvert's exporter, for untrusted notebooks."""

    @pass_context
    def markdown2html(self, context: Context, source: str) -> str:
        """Convert a Markdown cell or a Markdown output. Only cells can have formulas."""
        cell = context["cell"]
        renderer = MarkdownRenderer(cell.get("attachments", {}), formulas=cell.cell_type == "markdown")
        return str(MarkdownWithMath(renderer=renderer).render(source))

    def from_notebook_node(self, nb: NotebookNode, resources: Any = None, **options: Any) -> Any:
        """Convert a notebook, after removing the outputs that are not shown."""
        for cell in nb.cells:
            if cell.cell_type == "code":
                cell.outputs = [_safe_output(output) for output in cell.outputs]
        return super().from_notebook_node(nb, resources, **options)


class MarkdownRenderer(IPythonRenderer):
    """Render Markdown as HTML. Links between notebooks lead to their pages, and formulas become images."""

    def __init__(self, attachments: Mapping[str, Mapping[str, str]], formulas: bool) -> None:
        pictures = {
            name: {kind: file[kind] for kind in IMAGE_KINDS if kind in file} for name, file in attachments.items()
        }
        supported = {name: file for name, file in pictures.items() if file}
        super().__init__(escape=True, allow_harmful_protocols=False, attachments=supported)
        self.formulas = formulas

    def text(self, text: str) -> str:
        """Return an escaped text in which an HTML entity, such as `&eacute;`, became the character it stands for."""
        return html.escape(html.unescape(text))

    def link(self, text: str, url: str, title: str | None = None) -> str:
        """Link to the page of a notebook instead of the notebook, and show a page of the documentation by its name."""
        if documentation := _TO_DOCS.match(url):
            return f"{text} (<code>{html.escape(documentation[1])}</code>)"
        return str(super().link(text, _TO_NOTEBOOK.sub(r"\1.html", url), title))

    def image(self, text: str, url: str, title: str | None = None) -> str:
        """Show an image that is part of the notebook. Any other image becomes a link."""
        is_embedded = url.lower().startswith(tuple(f"data:{kind};" for kind in IMAGE_KINDS))
        if is_embedded or url.removeprefix("attachment:") in self.attachments:
            return str(super().image(text, url, title))
        return self.link(text or html.escape(url), url, title)

    def block_math(self, body: str) -> str:
        """Show a formula as an image, because the page has no scripts."""
        return _formula(body) if self.formulas else str(super().block_math(body))

    def block_mermaidjs(self, code: str) -> str:
        """Show the diagram as code, because drawing it needs a script."""
        return str(self.block_code(code))


def _formula(formula: str) -> str:
    """Return a formula as an image, or as typed if Matplotlib cannot read it."""
    from matplotlib.mathtext import math_to_image

    image = io.BytesIO()
    try:
        math_to_image(f"${formula}$", image, format="svg")
    except ValueError:
        return f"<code>{html.escape(formula)}</code>"
    source = "data:image/svg+xml;base64," + base64.b64encode(image.getvalue()).decode()
    return f'<img class="formula" src="{source}" alt="{html.escape(formula)}">'


def _safe_output(output: NotebookNode) -> NotebookNode:
    """Keep a stream or an error unchanged. Reduce other outputs to the kinds that are shown, or to a note."""
    if "data" not in output:
        return output
    data = {kind: output.data[kind] for kind in OUTPUT_KINDS if kind in output.data}
    notice = {"text/plain": f"not shown on this page: {', '.join(output.data) or 'nothing'}"}
    sizes = {kind: _size(output.get("metadata", {}).get(kind)) for kind in data}
    fields = {key: output[key] for key in ("output_type", "execution_count") if key in output}
    return from_dict({**fields, "data": data or notice, "metadata": sizes})


def _size(metadata: Any) -> dict[str, float]:
    """Return the width and the height in the metadata, each only if it is a number.

    Any other value is unsafe, because nbconvert writes it into the page without quotes.
    """
    sizes = metadata if isinstance(metadata, dict) else {}
    return {side: sizes[side] for side in ("width", "height") if isinstance(sizes.get(side), (int, float))}
