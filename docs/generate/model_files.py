"""What can be done with a model, by the kind of file that it comes as."""

from __future__ import annotations

from edgekit.models.files import support_table


def support() -> str:
    """The table, its reasons as notes under it."""
    return support_table.as_markdown()
