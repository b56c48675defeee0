"""A malicious notebook: nothing in it runs, and nothing leaves the machine."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbformat import v4

from edgekit.report.html import notebooks
from edgekit.report.html.templates import CONTENT_SECURITY_POLICY
from edgekit.report.tables import Table
from tests.report.html.browser import Browser

RAN = "window.ran = (window.ran || '') + "
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


@pytest.fixture
def stranger() -> Iterator[tuple[str, list[str]]]:
    """A server on this machine, and the paths of the requests to it."""
    requested_paths: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            requested_paths.append(self.path)
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", requested_paths
    server.shutdown()
    thread.join()
    server.server_close()


def tags(url: str, name: str) -> str:
    """HTML that runs and fetches where it is taken for HTML."""
    return (
        f"<script>{RAN}'{name} script '</script><script src='{url}/{name}.js'></script>"
        f"<img src='{url}/{name}.png' onerror=\"{RAN}'{name} onerror '\"><iframe src='{url}/{name}-frame'></iframe>"
        f"<link rel='stylesheet' href='{url}/{name}.css'><div style=\"background: url({url}/{name}-style)\">x</div>"
    )


def hostile(url: str) -> nbformat.NotebookNode:
    """Every way into a page that nbconvert knows of."""
    table = Table(("<i>variant</i>", "why"), [(tags(url, "cell"), "a & b < c")], tags(url, "title"))
    shown = partial(v4.new_output, "display_data")
    outputs = [
        shown({"text/html": tags(url, "html"), "text/plain": "a frame, in words"}),
        shown({"text/html": tags(url, "isolated")}, metadata={"text/html": {"isolated": True}}),
        shown({"application/javascript": f"{RAN}'javascript '", "text/plain": "a script"}),
        v4.new_output("execute_result", {"text/markdown": table._repr_markdown_(), "text/plain": repr(table)}),
        shown({"text/markdown": tags(url, "markdown") + " costs $$5 and $$6"}),
        shown({"text/latex": tags(url, "latex")}),
        shown({"text/vnd.mermaid": tags(url, "mermaid")}),
        shown(
            {"image/svg+xml": f"<svg xmlns='http://www.w3.org/2000/svg' width='9' height='9'>{tags(url, 'svg')}</svg>"},
        ),
        shown(
            {"image/png": PIXEL},
            metadata={
                "image/png": {"width": f"1 onload={RAN.replace(' ', '')}'width'", "height": 60},
                "filenames": {"image/png": f"{url}/file.png"},
            },
        ),
        v4.new_output("stream", name="stdout", text=f"cost $$5 and $$6 {tags(url, 'stdout')}"),
        v4.new_output("error", ename="E", evalue="e", traceback=[tags(url, "traceback")]),
    ]
    picture, row = {"image/png": PIXEL}, tags(url, "row").replace("|", r"\|")
    cells = [
        v4.new_markdown_cell(
            f"# Ill <script>{RAN}'heading '</script>\n\n{tags(url, 'block')}\n\ntext {tags(url, 'in')}"
        ),
        v4.new_markdown_cell(
            f"![remote]({url}/picture.png) ![carried](attachment:p.png) ![gone](attachment:q.png)\n\n"
            f"[run](javascript:{RAN.replace(' ', '')}1) [next](./06_benchmark.ipynb) R&amp;D &lt;5\n\n$$x^2 < y$$\n\n"
            f"```mermaid\n{tags(url, 'diagram')}\n```\n\n| a |\n| --- |\n| {row} |",
            attachments={"p.png": picture, "q.png": {"text/html": PIXEL}},
        ),
        v4.new_code_cell("price = '$$5 and $$6'  # <script>", outputs=outputs),
        v4.new_raw_cell(tags(url, "raw"), metadata={"raw_mimetype": "text/html"}),
    ]
    return v4.new_notebook(cells=cells)


@pytest.fixture
def drawn(stranger: tuple[str, list[str]], tmp_path: Path) -> Path:
    notebook, beside = tmp_path / "01_profile.ipynb", tmp_path / "report"
    beside.mkdir()
    nbformat.write(hostile(stranger[0]), notebook)
    notebooks.write_pages([notebook], beside)
    return beside / "01_profile.html"


def test_nothing_in_a_hostile_notebook_runs_or_leaves(
    drawn: Path, stranger: tuple[str, list[str]], browser: Browser
) -> None:
    browser.open(drawn, width=1280, dark=False)
    assert browser.ask("window.ran") is None
    assert stranger[1] == []
    assert [url for url in browser.requested if not url.startswith(("data:", "file:"))] == []
    assert browser.complaints == []  # it did not even come to the policy
    for tag in ("script", "iframe", "link[rel=stylesheet]", "form", "main style", "main [onerror]", "main [onload]"):
        assert browser.ask(f"document.querySelectorAll('{tag}').length") == 0, tag
    assert browser.ask("[...document.images].every((one) => one.src.startsWith('data:image/'))")
    seen = browser.ask("document.body.innerText")
    assert "a frame, in words" in seen  # HTML is shown as its words, and what has none is named
    assert "not shown on this page: text/html" in seen
    assert "not shown on this page: text/vnd.mermaid" in seen
    for name in ("block", "in", "diagram", "row", "cell", "title", "markdown", "stdout", "traceback", "latex"):
        assert f"{name} script" in seen, name  # as it was typed


def test_what_is_meant_well_in_it_is_still_there(drawn: Path, browser: Browser) -> None:
    browser.open(drawn, width=1280, dark=False)
    seen = browser.ask("document.body.innerText")
    assert "R&D <5" in seen
    assert "a & b < c" in seen
    links = browser.ask(
        "[...document.querySelectorAll('main a')].map((one) => [one.textContent, one.getAttribute('href')])"
    )
    assert ["next", "06_benchmark.html"] in links
    assert ["run", "#harmful-link"] in links
    assert [where.rpartition("/")[2] for words, where in links if words == "remote"] == ["picture.png"]
    assert browser.ask("document.querySelectorAll('img[alt=carried]').length") == 1
    assert browser.ask("document.querySelectorAll('td').length") == 3


def test_formulas_are_drawn_in_markdown_cells_and_nowhere_else(drawn: Path, browser: Browser) -> None:
    browser.open(drawn, width=1280, dark=False)
    formulas = "[...document.querySelectorAll('img.formula')]"
    assert browser.ask(f"{formulas}.map((one) => one.alt)") == ["x^2 < y"]
    assert browser.ask(f"{formulas}[0].closest('.text_cell') !== null")
    assert browser.ask("document.body.innerText").count("$$5 and $$6") == 3  # code, stdout, Markdown put out by code


@pytest.mark.parametrize("guarded", [True, False], ids=["as it is", "without its policy"])
def test_should_a_tag_get_through_the_policy_stops_it(
    guarded: bool, drawn: Path, stranger: tuple[str, list[str]], browser: Browser
) -> None:
    url, requested_paths = stranger
    text = drawn.read_text().replace("<main>", f"<main>{tags(url, 'through')}")
    policy = f'<meta http-equiv="Content-Security-Policy" content="{CONTENT_SECURITY_POLICY}">'
    assert text.count(policy) == 1
    drawn.write_text(text if guarded else text.replace(policy, ""))
    browser.open(drawn, width=1280, dark=False)
    assert (browser.ask("window.ran") is None) == guarded
    assert (requested_paths == []) == guarded  # without it they do arrive: the look above is a look
    assert browser.complaints or not guarded
