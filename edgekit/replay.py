"""Recorded decisions to follow: what `edgekit reproduce` puts into a run's folder before it walks.

A decision that rests on a measurement cannot be rebuilt, for another day measures differently. It is replayed as it
was recorded, and today's measurement is reported beside it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from edgekit.digests import write_json
from edgekit.errors import TrustError
from edgekit.runner.files import make_folder

FILE = "replay.json"
KINDS = {"winners": dict, "too_slow": list, "buys_nothing": list}
STAGE = "benchmark"
"""The stage whose decisions rest on a measurement."""


def recorded(folder: Path) -> dict[str, Any] | None:
    """What the benchmark of this run must decide; None: free.

    `{"winners": {target: variant}, "too_slow": [variant], "buys_nothing": [variant]}`.
    TrustError for a file that is not what `write` left.
    """
    path = folder / FILE
    if not path.is_file():
        return None
    try:
        values = json.loads(path.read_text())
        good = {name: type(value) for name, value in values.items()} == KINDS
    except (ValueError, AttributeError):
        good = False
    if not good:
        raise TrustError(f"{path}: not a record of decisions; remove it, or run `edgekit reproduce` again")
    return dict(values)


def write(folder: Path, measured: dict[str, Any]) -> None:
    """Make the run in `folder` follow these decisions."""
    make_folder(folder)
    write_json(folder / FILE, measured)
