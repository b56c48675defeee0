"""The executed notebooks of a run as Markdown pages with their pictures."""

from __future__ import annotations

import ast
import io
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
from nbconvert import MarkdownExporter
from nbformat import NotebookNode, from_dict
from traitlets.config import Config

PRIORITY = ["text/html", "text/markdown", "image/svg+xml", "image/png", "image/jpeg", "text/plain"]
"""HTML first, because a stage has its options as a table that is folded away only there."""
HINT = "make docs runs configs/digits.yaml first; `edgekit run configs/digits.yaml` makes such a run"
_ALT = re.compile(r"!\[(?:png|svg|jpeg)\]")
_NOTEBOOK = re.compile(r"\]\((?:\./)?(\d\d_[a-z]+)\.ipynb(#[^)]*)?\)")
_DOCUMENT = re.compile(r"\]\(\.\./docs/")
_TITLE = re.compile(r"^# (.+)$", re.MULTILINE)
_FORMULA = re.compile(r"^\$\$(.+?)\$\$$", re.MULTILINE | re.DOTALL)
PLACES = ("config", "out", "settings")
"""Parameters that say where a run lies: they belong to the machine that built the site."""


class NoRun(Exception):
    """There is no finished run to take the notebooks from."""


@dataclass(frozen=True)
class Page:
    """`name` is that of the notebook without its suffix; pictures by their path beside the page."""

    name: str
    markdown: str
    pictures: dict[str, bytes]


def pages(run: Path) -> list[Page]:
    """A page for every executed notebook of a finished run; NoRun where one is missing."""
    record = run / "result.json"
    if not record.is_file():
        raise NoRun(f"{run}: holds no finished run, so there are no notebooks to show; {HINT}")
    about = _about(json.loads(record.read_text()))
    executed = sorted((run / "notebooks").glob("0?_*.ipynb"))
    numbers = [path.name[:2] for path in executed]
    if numbers != [f"{number:02d}" for number in range(1, 8)]:
        raise NoRun(f"{run}: holds the executed notebooks {', '.join(numbers) or 'none'}, 01 to 07 are needed; {HINT}")
    return [page(path, about) for path in executed]


def page(path: Path, about: str) -> Page:
    """One executed notebook; `about` stands under its title. NoRun for a notebook with an unexecuted cell."""
    name = path.name.split(".")[0]
    notebook = nbformat.read(path, as_version=4)
    notebook.metadata.setdefault("language_info", {"name": "python"})
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    if not code or not all(cell.execution_count for cell in code):
        raise NoRun(f"{path}: was not executed to its end; {HINT}")
    notebook.cells = [cell for cell in map(_own, notebook.cells, [None, *notebook.cells]) if cell.source]
    body, resources = _exporter(name).from_notebook_node(notebook)
    pictures = dict(resources["outputs"].items())
    body = _FORMULA.sub(lambda found: _drawn(found[1], name, pictures), body)
    body = _NOTEBOOK.sub(r"](\1.md\2)", body)
    body = _DOCUMENT.sub("](../", body)  # from notebooks/ to docs/, of which the site is the root
    title = _TITLE.search(body)
    body = _ALT.sub(f"![Figure of {title[1] if title else name}]", body)
    return Page(name, _TITLE.sub(lambda found: f"{found[0]}\n\n{about}", body, count=1), pictures)


def _own(cell: NotebookNode, before: NotebookNode | None) -> NotebookNode:
    """A cell; of the parameters that papermill adds those that differ from the notebook's own, and say no place."""
    if before is None or "injected-parameters" not in cell.metadata.get("tags", ()):
        return cell
    default, given = _assigned(before.source), _assigned(cell.source)
    other = [f"{name} = {value}" for name, value in given.items() if name not in PLACES and value != default.get(name)]
    return from_dict({**cell, "source": "\n".join(["# of this run", *other] if other else [])})


def _assigned(source: str) -> dict[str, str]:
    """By name, the values that a parameters cell assigns, as they are written."""
    found: dict[str, str] = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.AnnAssign) and node.value is not None:
            found[ast.unparse(node.target)] = ast.unparse(node.value)
        elif isinstance(node, ast.Assign):
            found[ast.unparse(node.targets[0])] = ast.unparse(node.value)
    return found


def _drawn(formula: str, name: str, pictures: dict[str, bytes]) -> str:
    """The formula as a picture, which needs no script in the page."""
    from matplotlib.mathtext import math_to_image

    path, drawn = f"{name}/formula-{len(pictures)}.svg", io.BytesIO()
    math_to_image(f"${formula}$", drawn, format="svg")
    pictures[path] = drawn.getvalue()
    return f"![{formula.replace('[', '(').replace(']', ')')}]({path})"


def _about(result: dict[str, Any]) -> str:
    """What was run where, in one sentence for the reader of a page."""
    conditions = result["conditions"]
    return (
        f"*Executed by `edgekit run` for the config `{result['name']}`, with edgekit {result['edgekit']}, "
        f"{conditions['cores']} cores of {conditions['cpu']}. Latencies are those of this machine.*"
    )


def _exporter(name: str) -> MarkdownExporter:
    settings = Config()
    settings.NbConvertBase.display_data_priority = PRIORITY
    settings.ExtractOutputPreprocessor.output_filename_template = f"{name}/{{cell_index}}-{{index}}{{extension}}"
    return MarkdownExporter(config=settings)
