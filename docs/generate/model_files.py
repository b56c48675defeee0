"""What can be done with a model, by the kind of file that it comes as."""

from __future__ import annotations

from edgekit.sources import table


def support() -> str:
    """The table, its reasons as notes under it."""
    return table.as_markdown()
