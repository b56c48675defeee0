"""The site before it is built: its navigation has every page, and an executed notebook becomes a page of its own."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import nbformat
import pytest
import yaml

from docs.generate import hook, notebooks
from tests.conftest import ROOT

DOCS = ROOT / "docs"
REFERENCE = ROOT / "tests" / "reference"
RESULT = {"name": "tiny", "edgekit": "0.1.0", "conditions": {"cores": 2, "cpu": "Some CPU"}}


class Loader(yaml.SafeLoader):
    """YAML with mkdocs' tag for environment variables."""


Loader.add_constructor("!ENV", lambda loader, node: loader.construct_sequence(node)[-1])
CONFIG = yaml.load((ROOT / "mkdocs.yml").read_text(), Loader)


def listed(entry: Any) -> list[str]:
    """The pages of the navigation, in order."""
    if isinstance(entry, dict):
        entry = list(entry.values())
    return [entry] if isinstance(entry, str) else [page for inside in entry for page in listed(inside)]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A finished run with the reference notebooks, which are stored with their outputs."""
    folder = tmp_path / "run"
    (folder / "notebooks").mkdir(parents=True)
    for path in REFERENCE.glob("0[1-7]*.ipynb"):
        notebook = nbformat.read(path, as_version=4)  # only its code; the title is that of the workbook's own
        notebook.cells.insert(0, nbformat.read(ROOT / "notebooks" / path.name, as_version=4).cells[0])
        nbformat.write(notebook, folder / "notebooks" / path.name)
    (folder / "result.json").write_text(json.dumps(RESULT))
    return folder


def test_every_page_stands_in_the_navigation_once() -> None:
    pages = listed([hook._expanded(entry, DOCS) for entry in CONFIG["nav"]])
    there = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}
    made = {f"notebooks/{path.stem}.md" for path in (ROOT / "notebooks").glob("0[1-7]*.ipynb")}
    assert len(pages) == len(set(pages))
    assert there <= set(pages), "name the page in mkdocs.yml"
    assert made <= set(pages) and not made & there


def test_a_folder_of_the_navigation_begins_with_its_index(tmp_path: Path) -> None:
    for name, title in (("a", "Zebras"), ("b", "apples"), ("index", "How-to")):
        (tmp_path / "how").mkdir(exist_ok=True)
        (tmp_path / "how" / f"{name}.md").write_text(f"# {title}\n")
    entry = {"How-to": "how/*"}
    assert hook._expanded(entry, tmp_path) == {"How-to": ["how/index.md", "how/b.md", "how/a.md"]}


def test_links_of_llms_txt_lead_to_pages_of_the_site(tmp_path: Path) -> None:
    (tmp_path / "llms.txt").write_text("- [Config](reference/config.md): options\n- [Schema](result.schema.json)\n")
    hook.on_post_build(SimpleNamespace(site_dir=str(tmp_path)))
    assert (tmp_path / "llms.txt").read_text() == (
        "- [Config](reference/config.html): options\n- [Schema](result.schema.json)\n"
    )


def test_executed_notebooks_become_pages(run: Path) -> None:
    pages = notebooks.pages(run)
    assert [page.name for page in pages] == sorted(path.stem for path in (ROOT / "notebooks").glob("0[1-7]*.ipynb"))
    for page in pages:
        title, about = page.markdown.strip().splitlines()[:3:2]
        assert title.startswith(f"# {page.name[:2]} · ") and "`tiny`" in about and "Some CPU" in about
        shown = set(re.findall(r"!\[[^\]]*\]\(([^)]*)\)", page.markdown))
        assert shown == set(page.pictures)
        assert ".ipynb)" not in page.markdown
        assert "<style" not in page.markdown and "<script" not in page.markdown


def test_tables_and_prints_are_kept(run: Path) -> None:
    (prune,) = [page for page in notebooks.pages(run) if page.name == "03_prune"]
    assert "stage.run()" in prune.markdown
    assert re.search(r"^\|[-:| ]+\|$", prune.markdown, re.MULTILINE)


def test_a_figure_becomes_a_picture_beside_the_page(tmp_path: Path) -> None:
    png = (DOCS / "waterfall.png").read_bytes()
    data = {"image/png": base64.b64encode(png).decode(), "text/plain": "<Figure>"}
    cell = executed("latency.waterfall_figure(steps)", [])
    cell.outputs = [nbformat.v4.new_output("display_data", data)]
    title = nbformat.v4.new_markdown_cell("# 06 · Benchmark")
    nbformat.write(nbformat.v4.new_notebook(cells=[title, cell]), tmp_path / "06_benchmark.ipynb")
    page = notebooks.page(tmp_path / "06_benchmark.ipynb", "")
    assert page.pictures == {"06_benchmark/1-0.png": png}
    assert "![Figure of 06 · Benchmark](06_benchmark/1-0.png)" in page.markdown and "<Figure>" not in page.markdown


def test_parameters_of_papermill_are_shown_without_paths_of_this_machine(run: Path, tmp_path: Path) -> None:
    notebook = nbformat.v4.new_notebook(
        cells=[
            nbformat.v4.new_markdown_cell("# 03 · Prune\n\nOn to [quantize](04_quantize.ipynb#checks).\n\n$$x^2$$"),
            executed('config: str = "digits.yaml"  # the run\nratio: float = 0.5\nsteps: int = 3', ["parameters"]),
            executed('# Parameters\nconfig = "/home/me/mine.yaml"\nratio = 0.4\nsteps = 3\n', ["injected-parameters"]),
        ]
    )  # fmt: skip
    path = tmp_path / "03_prune.ipynb"
    nbformat.write(notebook, path)
    page = notebooks.page(path, "*about*")
    assert "/home/me" not in page.markdown
    assert "```python\n# of this run\nratio = 0.4\n```" in page.markdown
    assert "[quantize](04_quantize.md#checks)" in page.markdown
    (name,) = page.pictures
    assert page.pictures[name].startswith(b"<?xml") and f"![x^2]({name})" in page.markdown
    notebook.cells[2].source = '# Parameters\nconfig = "/home/me/mine.yaml"\nratio = 0.5\nsteps = 3\n'
    nbformat.write(notebook, path)
    assert "of this run" not in notebooks.page(path, "").markdown


def executed(source: str, tags: list[str]) -> Any:
    return nbformat.v4.new_code_cell(source, execution_count=1, metadata={"tags": tags})


@pytest.mark.parametrize("missing", ["result.json", "notebooks/04_quantize.ipynb"])
def test_what_is_no_finished_run_is_refused(run: Path, missing: str) -> None:
    (run / missing).unlink()
    with pytest.raises(notebooks.NoRun, match="make docs"):
        notebooks.pages(run)


def test_a_notebook_that_did_not_end_is_refused(run: Path) -> None:
    shutil.copy(ROOT / "notebooks" / "05_convert.ipynb", run / "notebooks")
    with pytest.raises(notebooks.NoRun, match="05_convert"):
        notebooks.pages(run)


def test_the_build_fails_plainly_without_a_run(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "EDGEKIT_DOCS_RUN": str(tmp_path / "nowhere"), "NO_MKDOCS_2_WARNING": "1"},
        timeout=120,
        check=False,
    )
    assert done.returncode != 0
    assert "holds no finished run" in done.stderr and "make docs" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_theme_asks_for_nothing_from_elsewhere() -> None:
    assert CONFIG["theme"]["font"] is False
    assert CONFIG["strict"] is True
