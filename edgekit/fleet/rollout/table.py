"""Rows for people, in columns as wide as they need."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def print_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print them; what is wrong with a device may be long, so the last column wraps on a terminal only."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    made = Table()
    for heading in headings:
        made.add_column(heading, no_wrap=heading != headings[-1])
    for row in rows:
        made.add_row(*map(escape, row))
    Console(width=None if sys.stdout.isatty() else 200).print(made)
