"""Write the reference notebooks anew: `make reference`, which is `python -m tests.reference.make`.

Each is a notebook's code on tests/configs/tiny.yaml, those of 00 and 08 on their examples, with the outputs that any
machine must give again: what sanitize.cfg names is replaced before it is stored, pictures are left out (that there is
one, and its size, stays), and so are the outputs of cells tagged `nbval-ignore-output`, which show nothing but
measurements. Compare with

    rm -rf build/reference && EDGEKIT_ARTIFACTS=$PWD/build/reference \\
        pytest --nbval --nbval-sanitize-with tests/reference/sanitize.cfg tests/reference

in an empty EDGEKIT_ARTIFACTS: a stage that is reused says so, and that is another output. A difference is either a
fault or a change that was meant; in the latter case run this, and read what `git diff` shows.
"""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import Any

import nbclient
import nbformat
from nbval.plugin import get_sanitize_patterns

from edgekit.core.config import STAGES
from edgekit.core.run_folder import notebook_name
from edgekit.workbook.notebook import FIELD_NOTEBOOK, SEARCH_NOTEBOOK
from edgekit.workbook.plan import Plan, load_plan, workbook_folder

HERE = Path(__file__).parent
CONFIG = "tests/configs/tiny.yaml"
IGNORE = "nbval-ignore-output"
PICTURES = ("image/png", "image/jpeg")


def tags(cell: Any) -> list[str]:
    """The tags of a cell, none if it has none."""
    return list(cell.metadata.get("tags", []))


SIDE = {"search": SEARCH_NOTEBOOK, "field": FIELD_NOTEBOOK}
"""Notebooks 00 and 08, which are no stages and take their parameters as they stand."""
ALL = ("search", *STAGES, "field")


def file_name(which: str) -> str:
    """Of the notebook of a stage, or of one of `SIDE`."""
    return SIDE.get(which) or notebook_name(which)


def prepare(stage: str, plan: Plan) -> Any:
    """The code of a stage's notebook with the plan's values in its parameters cell; its text is compared by nobody."""
    notebook = nbformat.read(workbook_folder("notebooks") / file_name(stage), as_version=4)
    notebook.cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for cell in notebook.cells:
        if "parameters" in tags(cell) and stage not in SIDE:
            values = {name: value for name, value in plan.scalars(stage).items() if f"\n{name}: " in cell.source}
            cell.source = set_parameters(cell.source, {"config": CONFIG, **values})
    return notebook


def set_parameters(source: str, values: dict[str, Any]) -> str:
    """The parameters cell with other values, its names, types and comments as they were."""
    for name, value in values.items():
        quoted = f'"{value}"' if isinstance(value, str) else repr(value)
        source, found = re.subn(rf"(?m)^({name}: \w+) = .*?(  # )", lambda m, q=quoted: f"{m[1]} = {q}{m[2]}", source)
        assert found == 1, name
    return source


def settle(notebook: Any, patterns: list[tuple[str, str]]) -> None:
    """Keep what is compared, as it is compared."""
    notebook.metadata = {key: notebook.metadata[key] for key in ("kernelspec",)}
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if IGNORE in tags(cell):
            cell.outputs = []
        for output in cell.outputs:
            if "data" in output:
                output.data = {
                    kind: sanitize(text, patterns) for kind, text in output.data.items() if kind not in PICTURES
                }
                output.metadata = {}
            elif "text" in output:
                output.text = sanitize(output.text, patterns)


def sanitize(text: str, patterns: list[tuple[str, str]]) -> str:
    """As nbval does it."""
    for pattern, replacement in patterns:
        text = re.sub(pattern, replacement, text)
    return text


def main() -> None:
    """Execute the pipeline from scratch, and notebooks 00 and 08, and write nine references."""
    patterns = get_sanitize_patterns((HERE / "sanitize.cfg").read_text())
    plan = load_plan(HERE.parent.parent / CONFIG)
    with tempfile.TemporaryDirectory() as fresh:
        os.environ["EDGEKIT_ARTIFACTS"] = fresh
        for stage in ALL:
            notebook = prepare(stage, plan)
            nbclient.NotebookClient(
                notebook, kernel_name="python3", resources={"metadata": {"path": str(HERE)}}, coalesce_streams=True
            ).execute()
            settle(notebook, patterns)
            nbformat.write(notebook, HERE / file_name(stage))
            print(f"wrote {HERE.name}/{file_name(stage)}")


if __name__ == "__main__":
    main()
