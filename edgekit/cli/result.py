"""What `edgekit run` prints at its end."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgekit.report.result.types import Result


def show_result(result: Result, folder: Path, *, whole: bool) -> None:
    """The verdict with all its tables if a stage ran; a short summary if the run was finished already."""
    if whole:
        from rich.console import Console

        from edgekit.report import console as report

        report.show(result, folder, Console(width=None if sys.stdout.isatty() else 140))
        return
    from edgekit.report import verdict

    for line in verdict.finished_lines(result, folder):
        print(line)
