"""`edgekit field report`: notebook 08 on a folder, and its decision on the terminal."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from edgekit.core.errors import ConfigError
from edgekit.report.field import advice, history
from edgekit.report.field.reports import folder as read_folder


def run(folder: Path, out: Path, say: Callable[[str], object]) -> None:
    """Check the reports first: a notebook's traceback tells a reader less."""
    if out.suffix != ".ipynb":
        raise ConfigError(f"--out {out}: name a file that ends in .ipynb")
    found = history.of(read_folder(folder))
    from edgekit.workbook import notebook

    notebook.execute_side_notebook(notebook.FIELD, {"reports": str(folder.resolve())}, out)
    say(f"reports     {len(found.reports)}; then: {found.then.name}, now: {found.now.name}")
    for step in advice.steps(found.now, found.comparison):
        say(f"next        {step.action}: {step.why}. To do: {step.how}.")
    say(f"wrote       {out}")
