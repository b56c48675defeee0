"""The links of a notebook on its page beside the report."""

from __future__ import annotations

from pathlib import Path

import nbformat
from nbformat import v4

from edgekit.report.html import notebooks

TEXT = (
    "[words](../docs/explanation/latency.md) [part](../docs/explanation/accuracy.md#bound) [next](02_distill.ipynb) "
    "[away](https://example.org/docs/x.md) <b>"
)


def test_a_page_of_the_docs_is_named_and_a_notebook_is_linked(tmp_path: Path) -> None:
    path, beside = tmp_path / "01_profile.ipynb", tmp_path / "report"
    beside.mkdir()
    nbformat.write(v4.new_notebook(cells=[v4.new_markdown_cell(TEXT)]), path)
    notebooks.write_pages([path], beside)
    page = (beside / "01_profile.html").read_text()
    assert "words (<code>docs/explanation/latency.md</code>)" in page
    assert "part (<code>docs/explanation/accuracy.md</code>)" in page
    assert 'href="../docs' not in page
    assert 'href="02_distill.html"' in page and 'href="https://example.org/docs/x.md"' in page
