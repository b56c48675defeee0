"""What the winner is beside files that somebody else made."""

from __future__ import annotations

from edgekit.core.artifacts import Artifact
from edgekit.report import rivals as model
from edgekit.report.columns import as_table
from edgekit.report.formatting import Table


def rivals(artifact: Artifact) -> Table:
    """Each rival, and what the winner is beside it; from the benchmark."""
    rows = artifact.metrics["rivals"]
    return as_table(model.COLUMNS, rows, "" if rows else "the config names no rival")
