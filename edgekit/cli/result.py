"""What `edgekit run` prints at its end."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgekit.workbook.run import Ended


def show_result(ended: Ended, folder: Path) -> None:
    """The verdict with all its tables if a stage ran; a short summary if the run was finished already."""
    if ended.anything_done:
        from rich.console import Console

        from edgekit.report import console

        console.show(ended.result, folder, Console(width=None if sys.stdout.isatty() else 140), drawn=ended.drawn)
        return
    from edgekit.report import verdict

    for line in verdict.finished_lines(ended.result, folder, drawn=ended.drawn):
        print(line)
