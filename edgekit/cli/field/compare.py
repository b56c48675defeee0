"""`edgekit compare` of two field reports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.report.field import show
from edgekit.report.field.compare import compare
from edgekit.report.field.reports import read

if TYPE_CHECKING:
    from rich.console import Console


def run(a: Path, b: Path, as_json: bool, console: Console) -> None:
    """Print the comparison, the earlier report first."""
    found = compare(read(a), read(b))
    if as_json:
        print(json.dumps(show.to_dict(found), sort_keys=True, allow_nan=False))
    else:
        show.show(found, console)
