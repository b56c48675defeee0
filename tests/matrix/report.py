"""The tables that the suites leave in build/ and print at their end."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

BUILD = Path(__file__).parent.parent.parent / "build"


@dataclass
class Table:
    """Rows of cells under columns; a row may be shorter, its last cell then holds a remark."""

    file: str
    columns: Sequence[str]
    remark: str
    rows: list[tuple[str, ...]] = field(default_factory=list)

    def markdown(self) -> str:
        """The table with a line on where it was measured."""
        filled = [
            [*(cell.replace("|", "/") for cell in row), *[""] * (len(self.columns) - len(row))] for row in self.rows
        ]
        lines = [self.columns, ["---"] * len(self.columns), *filled]
        where = (
            f"{len(self.rows)} rows on {platform.machine()}, {platform.system()} {platform.release()}. {self.remark}"
        )
        return "\n".join([*(f"| {' | '.join(line)} |" for line in lines), "", where, ""])

    def publish(self, terminal: pytest.TerminalReporter) -> None:
        """On the terminal and in its file, once there is something to show."""
        if self.rows:
            BUILD.mkdir(exist_ok=True)
            (BUILD / self.file).write_text(self.markdown())
            terminal.write_line(f"\n{self.markdown()}")
