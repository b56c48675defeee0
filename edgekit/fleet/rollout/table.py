"""Tables on the terminal, with columns as wide as their contents."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def print_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table. Only the last column may wrap, because it has reasons, which may be long."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table()
    for heading in headings:
        table.add_column(heading, no_wrap=heading != headings[-1])
    for row in rows:
        table.add_row(*map(escape, row))
    Console(width=None if sys.stdout.isatty() else 200).print(table)
